-- Corrects a charge to what it was worth, on each of its counters; nothing is refused.
--
-- KEYS  one counter for each demand
--
-- ARGV  [1] four numbers, packed as CIRCUMSTANCES:
--       serial      the reply starts with it, so that the caller knows it as its own
--       now         microseconds since the Unix epoch; 0: the server's time
--       charged_at  when the charge was made, in microseconds
--       keep        for how many milliseconds what is written is kept at least
--
--       [2] and on, for each demand a letter and six numbers, packed as DEMAND:
--       algorithm, limit, length, tick, refill    as in decide.lua
--       charged     units that were charged
--       worth       units that it was worth, at most 2^52
--
-- Reply bytes: as decide.lua's, of a look at the counters after that.
--
-- What a counter is stands in judge.lua, which stands before this, and so does write.lua.

local CIRCUMSTANCES, DEMAND = '>I8I8I8I8', '>c1I8I8I4I4I8I8'
-- More cannot be used up, whatever was overrun: in all, and in a window of a sliding one.
local MOST_USED, MOST_IN_A_WINDOW = 2 ^ 52, 2 ^ 26

-- A counter that was brought up to now, with a charge corrected.
local function settle(algorithm, now, charged_at, first, second, third, length, tick, refill, charged, worth)
  local refund, overrun = max(charged - worth, 0), max(worth - charged, 0)
  if algorithm == 'f' or algorithm == 'a' then
    if charged_at >= first and charged_at < first + length then
      second = max(second - refund, 0)
    end
    return first, min(second + overrun, MOST_USED), third
  end

  local charged_tick = floor(charged_at / tick)
  if algorithm == 's' then
    local charged_in = charged_tick - charged_tick % length
    if charged_in == first then
      third = max(third - refund, 0)
    elseif charged_in + length == first then
      second = max(second - refund, 0)
    end
    return first, second, min(third + overrun, MOST_IN_A_WINDOW)
  end

  -- What has been paid back already is not given back again.
  local since = max(floor(now / tick) - charged_tick, 0)
  local rest = since % length * refill
  local still_charged, part = max(charged - floor(since / length) * refill - floor(rest / length), 0), rest % length
  first = max(first - min(refund, still_charged), 0)
  if part > 0 and refund >= still_charged and still_charged > 0 then
    -- Of the last unit a part has been paid back already: that was time which is not counted again.
    second, third = second + floor((third + part) / refill), (third + part) % refill
  end
  return min(first + overrun, MOST_USED), second, third
end

local serial, now, charged_at, keep = struct.unpack(CIRCUMSTANCES, ARGV[1])
now = time_of(now)

local values = redis.call('MGET', unpack(KEYS))
local reply, written, expires_in = { struct.pack(NUMBER, serial), struct.pack(NUMBER, now) }, {}, {}
local all_known = true
for i = 1, #KEYS do
  local claim, first, second, third, mark = read(values[i], KEYS[i])
  if not claim then
    return no_counter(i)
  end
  local algorithm, limit, length, tick, refill, charged, worth = struct.unpack(DEMAND, ARGV[i + 1])
  local before_first, before_second, before_third = judge(algorithm, now, first, second, third, limit, 0, length, tick, refill)
  first, second, third =
    settle(algorithm, now, charged_at, before_first, before_second, before_third, length, tick, refill, charged, worth)
  local changes = first ~= before_first or second ~= before_second or third ~= before_third
  local _, used, fresh_at
  first, second, third, used, _, fresh_at = judge(algorithm, now, first, second, third, limit, 0, length, tick, refill)
  if changes and (values[i] or worth > charged) then
    written[i] = struct.pack(COUNTER, first, second, third, mark) .. claim
    expires_in[i] = kept_for(fresh_at, now, keep)
    all_known = all_known and values[i]
  end
  local is_above = mark > 0 and mark % 2 == 0 and 1 or 0
  reply[i + 2] = struct.pack(FINDING, used, -1, until_then(fresh_at, now), mark, is_above)
end
local failure
for i = 1, #KEYS do
  if written[i] and not failure then
    failure = write(KEYS[i], written[i], expires_in[i], all_known)
  end
end
return failure or table.concat(reply)
