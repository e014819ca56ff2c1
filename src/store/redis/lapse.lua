-- What time alone makes of a counter of attempts (its numbers: decide.lua): the lease of a call that was never ended is
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

