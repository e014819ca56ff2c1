-- The time to decide by, in microseconds since the Unix epoch: as it is given, or the server's if it is 0.
local function time_of(now)
  if now > 0 then
    return now
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- What time alone makes of a counter of attempts (its numbers: judge.lua): the lease of a call that was never ended is
-- over, and the rest starts; a rest is over, and all attempts are free again, or a pause is, and they stay counted.
local function lapse(now, stop, at_work, count, length)
  if at_work > 1 and now >= stop then
    stop, at_work = stop + length, 0
  end
  if at_work <= 1 and stop > 0 and now >= stop then
    stop, at_work, count = 0, 0, at_work == 1 and count or 0
  end
  return stop, at_work, count
end

