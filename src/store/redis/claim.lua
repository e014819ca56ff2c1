-- Gives the news of a watermark to the first instance that asks for it, so that of all instances one raises the event.
--
-- KEYS  [1] the counter
-- ARGV  [1] the mark that is news (decide.lua): even, usage has risen above the watermark; odd, it has fallen below again
--       [2] the instance, in hexadecimal
-- Reply 1: the news is this instance's to tell, now or when it asked before and did not hear; 0: it is not
--
-- The claim stands behind the counter, 'first:second:third:mark:claimed:instance', and ends with it.

local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local counter, mark, claimed, instance = value:match('^(%d+:%d+:%d+:(%d+)):?(%d*):?(%x*)$')
if not counter then
  return redis.error_reply('CORRUPT 1 what stands at this key is no counter')
end
local news = tonumber(ARGV[1])
mark, claimed = tonumber(mark), tonumber(claimed) or 0
if news == claimed then
  return instance == ARGV[2] and 1 or 0
end
-- A fall is news only to those who were told of the rise.
if news < claimed or news > mark or (news % 2 == 1 and claimed ~= news - 1) then
  return 0
end
redis.call('SET', KEYS[1], counter .. ':' .. ARGV[1] .. ':' .. ARGV[2], 'KEEPTTL')
return 1
