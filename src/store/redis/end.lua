-- Takes down that a call has ended that was charged on a counter of attempts ('c') or of failures ('l').
--
-- KEYS  [1] the counter
-- ARGV  [1] packed as END:
--       now            microseconds since the Unix epoch; 0: the server's time
--       keep           for how many milliseconds the counter is kept at least
--       algorithm, limit, length, refill, call, units    as they were charged (decide.lua)
--       charged_at     when that was, in microseconds
--       outcome        0 ended, or failed; 1 succeeded, and failures before are forgotten; 2 succeeded, and only this one
--                      does not count; 3 not made, because it does not fit: the rest starts now
--       rest_at_least  microseconds
-- Reply 1: something changed; 0: nothing
--
-- The forms are those of src/algorithm/attempts.rs and failures.rs. lapse.lua and write.lua stand before this.

local END, COUNTER, COUNTER_BYTES = '>I8I8c1I8I8I4I8I8I8I1I8', '>I8I8I8I8', 32
local LONGEST = 2 ^ 52
local max, min, ceil = math.max, math.min, math.ceil

local now, keep, algorithm, limit, length, refill, call, units, charged_at, outcome, rest_at_least =
  struct.unpack(END, ARGV[1])
now = time_of(now)

local first, second, third = 0, 0, 0
local counter = redis.call('GET', KEYS[1])
if counter then
  if #counter ~= COUNTER_BYTES then
    return redis.error_reply('CORRUPT 1 what stands at this key is no counter')
  end
  first, second, third = struct.unpack(COUNTER, counter)
end

local fresh_at
if algorithm == 'c' then
  first, second, third = lapse(now, first, second, third, length)
  if second > 1 and second == call then
    first, second = now + max(length, rest_at_least), 0
  elseif second > 1 then
    if rest_at_least <= length then
      return 0
    end
    first, second = max(now + rest_at_least, first + length), 0
  elseif first == 0 and outcome == 3 then
    first = now + length
  elseif rest_at_least == 0 then
    return 0
  elseif first == 0 then
    first, second = now + rest_at_least, 1
  else
    first = max(first, now + rest_at_least)
  end
  fresh_at = (second == 0 or third == 0) and first > 0 and first or now + LONGEST
else
  fresh_at = second > 0 and second or third > 0 and first + refill * 1000 or now
  if now >= fresh_at then
    first, second, third = 0, 0, 0
  end
  if outcome == 1 then
    first, second, third = 0, 0, 0
  elseif outcome == 2 and third > 0 and charged_at >= first then
    third = max(third - units, 0)
    if third < limit then
      second = 0
    end
  elseif outcome == 0 and second == 0 and third >= limit then
    second = now + max(length, rest_at_least)
  else
    return 0
  end
  fresh_at = second > 0 and second or third > 0 and first + refill * 1000 or now
end

if fresh_at <= now then
  redis.call('DEL', KEYS[1])
else
  local milliseconds = max(min(ceil((fresh_at - now) / 1000) + 1000, math.floor(LONGEST / 1000)), keep)
  local failure = write(KEYS[1], struct.pack(COUNTER, first, second, third, 0), milliseconds, counter)
  if failure then
    return failure
  end
end
return 1
