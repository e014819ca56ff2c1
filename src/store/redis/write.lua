-- Writes a counter, or a record; nothing if the server has no memory: then an error reply.
--
-- Only the first write of a script can be refused so. A change of an expiry takes no memory, so where everything that is
-- written is there already (`all_known`) it comes first, and the write is made nevertheless.
local has_written = false
local function write(key, value, milliseconds, all_known)
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

