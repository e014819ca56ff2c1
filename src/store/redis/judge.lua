-- How a counter is read, judged and written, for the scripts behind this. The forms are those of src/algorithm; lapse.lua
-- stands before this.
--
-- A counter is bytes: four numbers packed as COUNTER, and behind them who has claimed the mark (claim.lua), if anybody.
--       fixed and aligned window   first: start in microseconds, second: units used
--       sliding window             first: start in ticks, second, third: units used in the window before, and in this one
--       token bucket               first: units used, second: tick up to which it is refilled, third: parts of that tick
--       attempts                   first: end of the rest, of a pause, or of the lease of the call at the boundary, in
--                                  microseconds, or 0; second: that call, 1 in a pause, or 0; third: attempts
--       failures                   first: time of the first, in microseconds; second: end of the lock, or 0; third: failures
--       mark                       0: usage was never above the watermark; else twice the time at which it rose above
--                                  it, in microseconds, plus 1 once it has fallen below again
--
-- Everything is a whole number below 2^53, which is exact here; what could be more, and is told, is cut to 2^52.

local COUNTER, FINDING, NUMBER = '>I8I8I8I8', '>I8i8I8I8I1', '>I8'
local COUNTER_BYTES, CLAIM_BYTES, NUMBER_BYTES = 32, 16, 8
local LONGEST_TOLD, LARGEST, NEVER = 2 ^ 52, 2 ^ 53, 2 ^ 62
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- What a value is as a counter: who has claimed its mark, and its four numbers, of which the first three are nil if there is
-- no counter at this key; nil if it is something else.
local function read(value, key)
  if not value then
    -- A key without text may have something else.
    if redis.call('EXISTS', key) == 1 then
      return nil
    end
    return '', nil, nil, nil, 0
  end
  local claim = ''
  if #value == COUNTER_BYTES + CLAIM_BYTES then
    claim = value:sub(COUNTER_BYTES + 1)
  elseif #value ~= COUNTER_BYTES then
    return nil
  end
  local first, second, third, mark = struct.unpack(COUNTER, value)
  if first >= LARGEST or second >= LARGEST or third >= LARGEST or mark >= LARGEST then
    return nil
  end
  return claim, first, second, third, mark
end

local function no_counter(demand)
  return redis.error_reply('CORRUPT ' .. demand .. ' what stands at the key of this demand is no counter')
end

-- For how many milliseconds a counter is kept: longer than the time until it equals a fresh one, be that never, so that its
-- end grants nothing.
local function kept_for(fresh_at, now, keep)
  return max(min(ceil((fresh_at - now) / 1000) + 1000, floor(LONGEST_TOLD / 1000)), keep)
end

-- The microseconds until a time, as they are told.
local function until_then(time, now)
  return min(max(time - now, 0), LONGEST_TOLD)
end

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
    elseif used == 0 then
      -- All that was used has been given back: as good as fresh.
      start = max(now, start)
      start = algorithm == 'f' and start or start - start % length
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
    local start, lock, count = first or 0, second or 0, third or 0
    local fresh_at = lock > 0 and lock or count > 0 and start + refill * 1000 or now
    if now >= fresh_at then
      start, lock, count, fresh_at = 0, 0, 0, now
    end
    if lock > 0 or count + units > limit then
      return start, lock, count, lock > 0 and max(count, limit) or count, fresh_at, fresh_at, lock > 0
    end
    start = count == 0 and now or min(start, now)
    count = count + units
    return start, 0, count, count, nil, count > 0 and start + refill * 1000 or now, false
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

