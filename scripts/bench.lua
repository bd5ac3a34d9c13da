-- What wrk sends for scripts/bench: claims, each with a key of its own.
--
--   wrk … -s scripts/bench.lua URL/v1/policies/POLICY/claims -- SECRET RUN SUBJECTS COUNT TIMES
--
-- Each thread goes round COUNT subjects, TIMES times, and then on to the next COUNT; with
-- TIMES 0 it goes round the first ones for ever. Subjects begin with SUBJECTS, keys with RUN.
-- At the end one line of JSON tells how many claims were sent, how many answers bore each
-- status, and how long they took, in microseconds.

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(args)
  run, subjects = args[2], args[3]
  count, times = tonumber(args[4]), tonumber(args[5])
  sent, statuses = 0, {}
  head = string.format(
    "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
      .. "Content-Type: application/json\r\n",
    wrk.path, wrk.headers["Host"], args[1])
end

local function subject()
  local place = sent % count
  if times > 0 then
    place = place + count * math.floor(sent / (count * times))
  end
  return string.format("%s-%d-%d", subjects, number, place)
end

function request()
  local body = string.format('{"subject":"%s"}', subject())
  sent = sent + 1
  return string.format(
    "%sIdempotency-Key: %s-%d-%d\r\nContent-Length: %d\r\n\r\n%s",
    head, run, number, sent, #body, body)
end

function response(status)
  statuses[status] = (statuses[status] or 0) + 1
end

function done(summary, latency)
  local sent, totals = 0, {}
  for _, thread in ipairs(threads) do
    sent = sent + thread:get("sent")
    for status, total in pairs(thread:get("statuses")) do
      totals[status] = (totals[status] or 0) + total
    end
  end
  local members = {}
  for status, total in pairs(totals) do
    table.insert(members, string.format('"%d": %d', status, total))
  end
  local errors = summary.errors
  io.write(string.format(
    '{"duration": %d, "sent": %d, "statuses": {%s}, "broken": %d, "p50": %d, "p99": %d}\n',
    summary.duration, sent, table.concat(members, ", "),
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
