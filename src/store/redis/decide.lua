-- Judges any number of counters in one atomic step, and charges all of them or none.
--
-- KEYS  one counter for each demand, in the order judged; behind them, if the request has an id, its record.
--
-- ARGV  [1] four numbers, packed as CIRCUMSTANCES:
--       serial     the reply starts with it, so that the caller knows it as its own
--       now        microseconds since the Unix epoch; 0: the server's time
--       remember   for how many milliseconds the request is remembered; 0: it has no id
--       keep       for how many milliseconds what is written is kept at least
--
--       [2] and on, for each demand a letter and seven numbers, packed as DEMAND:
--       algorithm  'f' fixed window, 'a' aligned window, 's' sliding window, 'b' token bucket, 'c' attempts and then a
--                  rest, 'l' failures and then a lock (end.lua)
--       limit      units
--       units      to be charged: 0 looks; -1 cannot fit at any time, so nothing is charged anywhere
--       length     of the period, in ticks
--       tick       in microseconds
--       refill     of a bucket, units in a period; of attempts, the milliseconds that a call at the boundary may take; of
--                  failures, the milliseconds within which they count; else 0
--       high, low  the units from which usage is above the watermark, and those up to which it is below; -1, -1: none.
--                  Of attempts: -1, and the call that is charged
--
-- Reply bytes: serial, then for each demand, packed as FINDING, as of this decision:
--       used       units, those charged now included
--       wait       microseconds until the units fit; -1: they do
--       reset      microseconds until the counter equals a fresh one
--       mark       as it stands in the counter
--       above      1 if usage is above the watermark, or if nothing fits until a rest or a lock has ended; else 0
--       and, if the reply is that of an earlier decision for the same request, behind all of that the limit of each
--
-- A counter is bytes: four numbers packed as COUNTER, and behind them who has claimed the mark (claim.lua), if anybody.
--       fixed and aligned window   first: start in microseconds, second: units used
--       sliding window             first: start in ticks, second, third: units used in the window before, and in this one
--       token bucket               first: units used, second: tick up to which it is refilled, third: parts of that tick
--       attempts                   first: end of the rest, of a pause, or of the lease of the call at the boundary, in
--                                  microseconds, or 0; second: that call, 1 in a pause, or 0; third: attempts
--       failures                   first: time of the first, or end of the lock, in microseconds; second: 1 if it is
--                                  locked; third: failures
--       mark                       0: usage was never above the watermark; else twice the time at which it rose above
--                                  it, in microseconds, plus 1 once it has fallen below again
-- A record is bytes: the time in microseconds until which it counts, and the reply for later, without its serial.
--
-- Everything is a whole number below 2^53, which is exact here; what could be more, and is told, is cut to 2^52.
-- The forms are those of src/algorithm. lapse.lua stands before this.

local CIRCUMSTANCES, DEMAND = '>I8I8I8I8', '>c1I8i8I8I4I4i8i8'
local COUNTER, FINDING, NUMBER = '>I8I8I8I8', '>I8i8I8I8I1', '>I8'
local COUNTER_BYTES, CLAIM_BYTES, NUMBER_BYTES = 32, 16, 8
local LONGEST_TOLD, LARGEST, NEVER = 2 ^ 52, 2 ^ 53, 2 ^ 62
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- The tick at which so many of the used units of a bucket are paid back.
local function paid_back_at(paid, mark, parts, length, refill)
  return mark + floor(paid / refill) * length + ceil((paid % refill * length + parts) / refill)
end

-- A counter (`first` is nil: there is none) at a time, asked for so many units: its state with the units charged if they
-- fit, else without; the units used in that state; when they fit, nil if they do; when the state equals a fresh one; and
-- whether nothing fits until a rest has ended.
local function judge(algorithm, now, first, second, third, limit, units, length, tick, refill, call)
  if algorithm == 'f' or algorithm == 'a' then
    local start, used = first, second
    if not start or now >= start + length then
      start, used = algorithm == 'f' and now or now - now % length, 0
    end
    local stop, fits_at = start + length, nil
    if used + units <= limit then
      used = used + units
    else
      fits_at = stop
    end
    return start, used, 0, used, fits_at, used == 0 and now or stop
  end

  local ticks = floor(now / tick)
  if algorithm == 's' then
    local start, previous, current = first, second, third
    if not start or ticks >= start + 2 * length then
      start, previous, current = ticks - ticks % length, 0, 0
    elseif ticks >= start + length then
      start, previous, current = start + length, current, 0
    end
    local used = current + floor(previous * (length - max(ticks - start, 0)) / length)
    local following, fits_at = start + length, nil
    if used + units <= limit then
      current, used = current + units, used + units
    elseif limit - units >= current then
      fits_at = (following - floor(((limit - units - current + 1) * length - 1) / previous)) * tick
    else
      fits_at = (following + max(0, length - floor(((limit - units + 1) * length - 1) / current))) * tick
    end
    local fresh_at = now
    if current > 0 then
      fresh_at = (following + length) * tick
    elseif previous > 0 then
      fresh_at = following * tick
    end
    return start, previous, current, used, fits_at, fresh_at
  end

  if algorithm == 'c' then
    local stop, at_work, count = lapse(now, first or 0, second or 0, third or 0, length)
    if stop > 0 then
      local fits_at = stop + (at_work > 1 and length or 0)
      return stop, at_work, count, max(count, limit), fits_at, at_work == 1 and count > 0 and NEVER or fits_at, true
    end
    if count + units > limit then
      return 0, 0, count, count, now + length, count == 0 and now or NEVER, false
    end
    count = count + units
    if units > 0 and count == limit then
      stop, at_work = now + refill * 1000, max(call, 2)
      return stop, at_work, count, count, nil, stop + length, true
    end
    return 0, 0, count, count, nil, count == 0 and now or NEVER, false
  end

  if algorithm == 'l' then
    local time, locked, count = first or 0, second or 0, third or 0
    local fresh_at = locked == 1 and time or count > 0 and time + refill * 1000 or now
    if now >= fresh_at then
      time, locked, count, fresh_at = 0, 0, 0, now
    end
    if locked == 1 or count + units > limit then
      return time, locked, count, locked == 1 and max(count, limit) or count, fresh_at, fresh_at, locked == 1
    end
    if count == 0 then
      time = now
    end
    count = count + units
    return time, 0, count, count, nil, count > 0 and time + refill * 1000 or now, false
  end

  local used, mark, parts = first, second, third
  if not used then
    used, mark, parts = 0, ticks, 0
  else
    if parts >= refill then
      mark, parts = mark + 1, 0
    end
    if used == 0 then
      mark, parts = max(ticks, mark), 0
    elseif ticks > mark then
      local periods, rest = floor((ticks - mark) / length), (ticks - mark) % length
      if periods > ceil(used / refill) then
        used = 0
      else
        local whole = floor((rest * refill - parts) / length)
        local moved = parts + whole * length
        used = max(used - periods * refill - whole, 0)
        mark, parts = mark + periods * length + floor(moved / refill), moved % refill
      end
      if used == 0 then
        mark, parts = ticks, 0
      end
    end
  end
  local fits_at
  if used + units <= limit then
    used = used + units
  else
    fits_at = paid_back_at(used + units - limit, mark, parts, length, refill) * tick
  end
  return used, mark, parts, used, fits_at, used == 0 and now or paid_back_at(used, mark, parts, length, refill) * tick
end

local function corrupt(demand)
  return redis.error_reply('CORRUPT ' .. demand .. ' what stands at the key of this demand is no counter')
end

local serial, now, remember, keep = struct.unpack(CIRCUMSTANCES, ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local demands = #ARGV - 1
local record = remember > 0 and KEYS[demands + 1]
if record then
  local recorded = redis.call('GET', record)
  if recorded and now < struct.unpack(NUMBER, recorded) then
    return struct.pack(NUMBER, serial) .. recorded:sub(NUMBER_BYTES + 1)
  end
end

local values = record and redis.call('MGET', unpack(KEYS, 1, demands)) or redis.call('MGET', unpack(KEYS))
local reply, written, expires_in = { struct.pack(NUMBER, serial) }, {}, {}
local refused, charges, all_known, corrupt = false, false, true, nil

-- Judges all demands, and puts the reply together: with all that fit charged, or without any charge.
local function judge_all(with_charges)
  for i = 1, demands do
    local value, first, second, third, mark, claim = values[i], nil, nil, nil, 0, ''
    if value then
      if #value == COUNTER_BYTES + CLAIM_BYTES then
        claim = value:sub(COUNTER_BYTES + 1)
      elseif #value ~= COUNTER_BYTES then
        corrupt = i
        return
      end
      first, second, third, mark = struct.unpack(COUNTER, value)
      if first >= LARGEST or second >= LARGEST or third >= LARGEST or mark >= LARGEST then
        corrupt = i
        return
      end
    else
      all_known = false
      -- A key without text may have something else.
      if redis.call('EXISTS', KEYS[i]) == 1 then
        corrupt = i
        return
      end
    end

    local algorithm, limit, units, length, tick, refill, high, low = struct.unpack(DEMAND, ARGV[i + 1])
    local charged, cannot_fit = units, units < 0
    if cannot_fit then
      charged = 0
    end
    local next_first, next_second, next_third, used, fits_at, fresh_at, is_resting =
      judge(algorithm, now, first, second, third, limit, charged, length, tick, refill, low)
    if fits_at then
      charged = 0
    elseif charged > 0 and not with_charges then
      charged = 0
      next_first, next_second, next_third, used, fits_at, fresh_at, is_resting =
        judge(algorithm, now, first, second, third, limit, 0, length, tick, refill, low)
      fits_at = nil
    end

    local is_above, next_mark = is_resting and 1 or 0, mark
    if high >= 0 then
      local was_above = mark > 0 and mark % 2 == 0
      local stays_above = was_above and used - charged > low
      if stays_above or used >= high then
        is_above = 1
      end
      if used >= high and not stays_above then
        next_mark = 2 * max(now, floor(mark / 2) + 1)
      elseif was_above and not stays_above then
        next_mark = mark + 1
      end
    end
    if charged > 0 then
      charges, mark = true, next_mark
      written[i] = struct.pack(COUNTER, next_first, next_second, next_third, mark) .. claim
      -- Longer than the time until it equals a fresh one, be that never, so that its end grants nothing.
      expires_in[i] = max(min(ceil((fresh_at - now) / 1000) + 1000, floor(LONGEST_TOLD / 1000)), keep)
    end

    local waits = fits_at and units ~= 0
    refused = refused or waits or cannot_fit
    local wait = waits and min(max(fits_at - now, 0), LONGEST_TOLD) or -1
    local reset = min(max(fresh_at - now, 0), LONGEST_TOLD)
    reply[i + 1] = struct.pack(FINDING, used, wait, reset, mark, is_above)
  end
end

-- First everything is read and judged …
judge_all(true)
if refused and charges and not corrupt then
  judge_all(false)
end
if corrupt then
  return redis.error_reply('CORRUPT ' .. corrupt .. ' what stands at the key of this demand is no counter')
end
-- … then it is known whether anything is written.
if refused or not charges then
  return table.concat(reply)
end

-- Only the first write of a script can be refused, by a server without memory: nothing is written then. A change of an
-- expiry takes no memory, so where every counter is there already it comes first, and the decision is made nevertheless.
local has_written = false
local function write(key, value, milliseconds)
  if has_written then
    redis.call('SET', key, value, 'PX', milliseconds)
    return
  end
  local answer = redis.pcall('SET', key, value, 'PX', milliseconds)
  if answer.err and all_known and answer.err:find('OOM', 1, true) then
    redis.call('PEXPIRE', key, milliseconds)
    answer = redis.call('SET', key, value, 'PX', milliseconds)
  end
  has_written = true
  return answer.err and answer
end

local failure
if record then
  local recorded = { struct.pack(NUMBER, now + 1000 * remember), unpack(reply, 2) }
  for i = 1, demands do
    local _, limit = struct.unpack(DEMAND, ARGV[i + 1])
    recorded[#recorded + 1] = struct.pack(NUMBER, limit)
  end
  all_known = false
  failure = write(record, table.concat(recorded), max(remember, keep))
end
for i = 1, demands do
  if written[i] and not failure then
    failure = write(KEYS[i], written[i], expires_in[i])
  end
end
return failure or table.concat(reply)
