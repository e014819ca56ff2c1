-- Gives the news of a watermark to the first instance that asks for it, so that of all instances one raises the event.
--
-- KEYS  [1] the counter
-- ARGV  [1] packed as CLAIM: the mark that is news (judge.lua), and the instance that asks. An even mark is usage that
--           has risen above the watermark, an odd one usage that has fallen below again
-- Reply 1: the news is this instance's to tell, now or when it asked before and did not hear; 0: it is not
--
-- The latest claim stands behind the counter, and ends with it.

local COUNTER, CLAIM, COUNTER_BYTES, CLAIM_BYTES = '>I8I8I8I8', '>I8c8', 32, 16

local counter = redis.call('GET', KEYS[1])
if not counter then
  return 0
end
if #counter ~= COUNTER_BYTES and #counter ~= COUNTER_BYTES + CLAIM_BYTES then
  return redis.error_reply('CORRUPT 1 what stands at this key is no counter')
end
local _, _, _, mark = struct.unpack(COUNTER, counter)
local news, instance = struct.unpack(CLAIM, ARGV[1])
local claimed, by = 0, nil
if #counter > COUNTER_BYTES then
  claimed, by = struct.unpack(CLAIM, counter, COUNTER_BYTES + 1)
end
if news == claimed then
  return by == instance and 1 or 0
end
-- A fall is news only to those who were told of the rise.
if news < claimed or news > mark or (news % 2 == 1 and claimed ~= news - 1) then
  return 0
end
redis.call('SET', KEYS[1], counter:sub(1, COUNTER_BYTES) .. ARGV[1], 'KEEPTTL')
return 1
