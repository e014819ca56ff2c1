-- Judges any number of counters in one atomic step, and charges all of them or none.
--
-- KEYS  one counter for each demand, in the order judged; behind them, if ARGV[3] is not '0', the record of the request.
--
-- ARGV  [1] a number that the reply starts with, by which the caller knows it as its own
--       [2] the time in microseconds since the Unix epoch; '': the server's
--       [3] for how many milliseconds the request is remembered; '0': it has no id
--       [4] for how many milliseconds what is written is kept at least
--       then eight for each demand:
--       algorithm  'f' fixed window, 'a' aligned window, 's' sliding window, 'b' token bucket
--       limit      units
--       units      to be charged: 0 looks, -1 cannot fit at any time, so nothing is charged anywhere
--       length     of the period, in ticks
--       tick       in microseconds
--       refill     units in a period; 0 for windows
--       high, low  the units from which usage is above the watermark, and those up to which it is below; '-1', '-1': none
--
-- Reply [1] ARGV[1]; then five integers for each demand, as of this decision:
--       used       units, those charged now included
--       wait       microseconds until the units fit; -1: they do
--       reset      microseconds until the counter equals a fresh one
--       above      1 if usage is above the watermark, else 0
--       mark       as it stands in the counter
--       and, if the reply is that of an earlier decision for the same request, behind all of that the limit of each
--
-- A counter is text, 'first:second:third:mark', of whole numbers; behind it may stand who has claimed the mark (claim.lua).
--       fixed and aligned window   first: start in microseconds, second: units used
--       sliding window             first: start in ticks, second, third: units used in the window before, and in this one
--       token bucket               first: units used, second: tick up to which it is refilled, third: parts of that tick
--       mark                       0: usage was never above the watermark; else twice the time at which it rose above
--                                  it, in microseconds, plus 1 once it has fallen below again
--
-- A record is text, numbers with commas between them: the time in microseconds until which it counts, and the reply for
-- later, without its first number.
--
-- Everything is a whole number below 2^53, which is exact here; what could be more, and is told, is cut to 2^52.
-- The forms are those of src/algorithm.

local FIXED_ARGUMENTS, ARGUMENTS = 4, 8
local LONGEST_TOLD, LARGEST = 2 ^ 52, 2 ^ 53
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local function window(now, start, used, third, limit, units, length, tick, refill, aligned)
  if not start or now >= start + length then
    start, used = aligned and now - now % length or now, 0
  end
  local fits = used + units <= limit
  if fits then
    used = used + units
  end
  local stop = start + length
  return fits, start, used, 0, used, stop, used == 0 and now or stop
end

local function aligned_window(now, start, used, third, limit, units, length)
  return window(now, start, used, third, limit, units, length, 1, 0, true)
end

local function sliding_window(now, start, previous, current, limit, units, length, tick)
  now = floor(now / tick)
  if not start or now >= start + 2 * length then
    start, previous, current = now - now % length, 0, 0
  elseif now >= start + length then
    start, previous, current = start + length, current, 0
  end
  local elapsed = max(now - start, 0)
  local used = current + floor(previous * (length - elapsed) / length)
  local following = start + length
  if used + units <= limit then
    current = current + units
    local fresh = current > 0 and following + length or previous > 0 and following or now
    return true, start, previous, current, used + units, nil, fresh * tick
  end
  local fits_at
  local room = limit - units
  if room >= current then
    fits_at = following - floor(((room - current + 1) * length - 1) / previous)
  else
    fits_at = following + max(0, length - floor(((room + 1) * length - 1) / current))
  end
  local fresh = current > 0 and following + length or following
  return false, start, previous, current, used, fits_at * tick, fresh * tick
end

local function token_bucket(now, used, mark, parts, limit, units, length, tick, refill)
  local exact_now = now
  now = floor(now / tick)
  if not used then
    used, mark, parts = 0, now, 0
  else
    if parts >= refill then
      mark, parts = mark + 1, 0
    end
    if used == 0 then
      mark, parts = max(now, mark), 0
    elseif now > mark then
      local elapsed = now - mark
      local periods, ticks = floor(elapsed / length), elapsed % length
      if periods > ceil(used / refill) then
        used = 0
      else
        local whole = floor((ticks * refill - parts) / length)
        local moved = parts + whole * length
        used = max(used - periods * refill - whole, 0)
        mark, parts = mark + periods * length + floor(moved / refill), moved % refill
      end
      if used == 0 then
        mark, parts = now, 0
      end
    end
  end
  -- The time at which so many of the used units are paid back.
  local function paid_back_at(paid)
    local rest = paid % refill
    return (mark + floor(paid / refill) * length + ceil((rest * length + parts) / refill)) * tick
  end
  local fits_at
  if used + units <= limit then
    used = used + units
  else
    fits_at = paid_back_at(used + units - limit)
  end
  return not fits_at, used, mark, parts, used, fits_at, used == 0 and exact_now or paid_back_at(used)
end

local judges = { f = window, a = aligned_window, s = sliding_window, b = token_bucket }

-- The mark after usage went from `before` to `after`, and whether it is above the watermark.
local function next_mark(mark, before, after, high, low, now)
  local is_above = mark > 0 and mark % 2 == 0 and before > low
  if not is_above and after >= high then
    return 2 * max(now, floor(mark / 2) + 1), true
  end
  return (is_above or mark % 2 == 1 or mark == 0) and mark or mark + 1, is_above
end

local function text(number)
  return string.format('%.0f', number)
end

local now
if ARGV[2] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[2])
end

local demands = (#ARGV - FIXED_ARGUMENTS) / ARGUMENTS
local record = ARGV[3] ~= '0' and KEYS[demands + 1]
if record then
  local recorded = redis.call('GET', record)
  local numbers = recorded and recorded:gmatch('[^,]+')
  if numbers and now < tonumber(numbers()) then
    local reply = { tonumber(ARGV[1]) }
    for number in numbers do
      reply[#reply + 1] = tonumber(number)
    end
    return reply
  end
end

-- First everything is read and judged …
local values = redis.call('MGET', unpack(KEYS, 1, demands))
local judged, admitted, charges, all_known = {}, true, false, true
for i = 1, demands do
  local value, first, second, third, mark, claim = values[i], nil, nil, nil, 0, ''
  if value then
    first, second, third, mark, claim = value:match('^(%d+):(%d+):(%d+):(%d+)(:?[:%x]*)$')
    first, second, third, mark = tonumber(first), tonumber(second), tonumber(third), tonumber(mark)
    if not first or max(first, second, third, mark) >= LARGEST or not (claim == '' or claim:find('^:%d+:%x+$')) then
      return redis.error_reply('CORRUPT ' .. i .. ' what stands at the key of this demand is no counter')
    end
  else
    -- A key that has no text may have something else.
    if redis.call('EXISTS', KEYS[i]) == 1 then
      return redis.error_reply('CORRUPT ' .. i .. ' what stands at the key of this demand is no counter')
    end
    all_known = false
  end
  local at = FIXED_ARGUMENTS + (i - 1) * ARGUMENTS
  local demand = {
    judge = judges[ARGV[at + 1]],
    first = first, second = second, third = third, mark = mark, claim = claim,
    limit = tonumber(ARGV[at + 2]), units = tonumber(ARGV[at + 3]),
    length = tonumber(ARGV[at + 4]), tick = tonumber(ARGV[at + 5]), refill = tonumber(ARGV[at + 6]),
    high = tonumber(ARGV[at + 7]), low = tonumber(ARGV[at + 8]),
  }
  judged[i] = demand
  local units = max(demand.units, 0)
  demand.fits, demand.next_first, demand.next_second, demand.next_third, demand.used, demand.fits_at, demand.fresh_at =
    demand.judge(now, first, second, third, demand.limit, units, demand.length, demand.tick, demand.refill)
  admitted = admitted and demand.units >= 0 and (demand.fits or units == 0)
  charges = charges or units > 0
end

-- … then it is known whether anything is written.
local reply = { tonumber(ARGV[1]) }
for i = 1, demands do
  local demand = judged[i]
  local charged = admitted and demand.units or 0
  if not admitted and demand.fits and demand.units > 0 then
    -- As it is without the charge that another demand prevents.
    local _
    _, _, _, _, demand.used, _, demand.fresh_at = demand.judge(
      now, demand.first, demand.second, demand.third, demand.limit, 0, demand.length, demand.tick, demand.refill)
  end
  local is_above = false
  if demand.high >= 0 then
    local mark
    mark, is_above = next_mark(demand.mark, demand.used - charged, demand.used, demand.high, demand.low, now)
    if charged > 0 then
      demand.mark = mark
    end
  end
  local wait = -1
  if not demand.fits and demand.units ~= 0 then
    wait = min(max(demand.fits_at - now, 0), LONGEST_TOLD)
  end
  local n = #reply
  reply[n + 1] = demand.used
  reply[n + 2] = wait
  reply[n + 3] = min(max(demand.fresh_at - now, 0), LONGEST_TOLD)
  reply[n + 4] = is_above and 1 or 0
  reply[n + 5] = demand.mark
end
if not (admitted and charges) then
  return reply
end

-- Only the first write of a script can be refused, by a server without memory: nothing is written then. A change of an
-- expiry takes no memory, so where every counter is there already it comes first, and the decision is made nevertheless.
local function write_first(key, value, milliseconds)
  local answer = redis.pcall('SET', key, value, 'PX', milliseconds)
  if answer.err and answer.err:find('OOM', 1, true) and all_known then
    redis.call('PEXPIRE', key, milliseconds)
    answer = redis.call('SET', key, value, 'PX', milliseconds)
  end
  return answer
end

local has_written = false
if record then
  local numbers = { text(now + 1000 * tonumber(ARGV[3])) }
  for i = 2, #reply do
    numbers[i] = text(reply[i])
  end
  for i = 1, demands do
    numbers[#numbers + 1] = text(judged[i].limit)
  end
  local milliseconds = text(max(tonumber(ARGV[3]), tonumber(ARGV[4])))
  local answer = redis.pcall('SET', record, table.concat(numbers, ','), 'PX', milliseconds)
  if answer.err then
    return answer
  end
  has_written = true
end
for i = 1, demands do
  local demand = judged[i]
  if demand.units > 0 then
    local value = string.format('%.0f:%.0f:%.0f:%.0f%s',
      demand.next_first, demand.next_second, demand.next_third, demand.mark, demand.claim)
    -- Longer than the time until it equals a fresh one, so that its end grants nothing.
    local milliseconds = text(max(ceil((demand.fresh_at - now) / 1000) + 1000, tonumber(ARGV[4])))
    if has_written then
      redis.call('SET', KEYS[i], value, 'PX', milliseconds)
    else
      local answer = write_first(KEYS[i], value, milliseconds)
      if answer.err then
        return answer
      end
      has_written = true
    end
  end
end
return reply
