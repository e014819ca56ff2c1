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
-- Reply bytes: serial, the time of the decision in microseconds, then for each demand, packed as FINDING, as of then:
--       used       units, those charged now included
--       wait       microseconds until the units fit; -1: they do
--       reset      microseconds until the counter equals a fresh one
--       mark       as it stands in the counter
--       above      1 if usage is above the watermark, or if nothing fits until a rest or a lock has ended; else 0
--       and, if the reply is that of an earlier decision for the same request, behind all of that the limit of each
--
-- A record is bytes: the time in microseconds until which it counts, and the reply for later, without its serial.
--
-- What a counter is stands in judge.lua, which stands before this.

local CIRCUMSTANCES, DEMAND = '>I8I8I8I8', '>c1I8i8I8I4I4i8i8'

local serial, now, remember, keep = struct.unpack(CIRCUMSTANCES, ARGV[1])
now = time_of(now)

local demands = #ARGV - 1
local record = remember > 0 and KEYS[demands + 1]
if record then
  local recorded = redis.call('GET', record)
  if recorded and now < struct.unpack(NUMBER, recorded) then
    return struct.pack(NUMBER, serial) .. recorded:sub(NUMBER_BYTES + 1)
  end
end

local values = record and redis.call('MGET', unpack(KEYS, 1, demands)) or redis.call('MGET', unpack(KEYS))
local reply, written, expires_in = { struct.pack(NUMBER, serial), struct.pack(NUMBER, now) }, {}, {}
local refused, charges, all_known, corrupt = false, false, true, nil

-- Judges all demands, and puts the reply together: with all that fit charged, or without any charge.
local function judge_all(with_charges)
  for i = 1, demands do
    local claim, first, second, third, mark = read(values[i], KEYS[i])
    if not claim then
      corrupt = i
      return
    end
    all_known = all_known and values[i]

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
      expires_in[i] = kept_for(fresh_at, now, keep)
    end

    local waits = fits_at and units ~= 0
    refused = refused or waits or cannot_fit
    local wait = waits and until_then(fits_at, now) or -1
    reply[i + 2] = struct.pack(FINDING, used, wait, until_then(fresh_at, now), mark, is_above)
  end
end

-- First everything is read and judged …
judge_all(true)
if refused and charges and not corrupt then
  judge_all(false)
end
if corrupt then
  return no_counter(corrupt)
end
-- … then it is known whether anything is written.
if refused or not charges then
  return table.concat(reply)
end

local failure
if record then
  local recorded = { struct.pack(NUMBER, now + 1000 * remember), unpack(reply, 2) }
  for i = 1, demands do
    local _, limit = struct.unpack(DEMAND, ARGV[i + 1])
    recorded[#recorded + 1] = struct.pack(NUMBER, limit)
  end
  failure = write(record, table.concat(recorded), max(remember, keep), false)
end
for i = 1, demands do
  if written[i] and not failure then
    failure = write(KEYS[i], written[i], expires_in[i], all_known)
  end
end
return failure or table.concat(reply)
