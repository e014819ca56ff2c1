// Asks a URL, and prints what the package reads of the answer's limits; the second argument says how the reset is told.

const { parseRateLimit } = require("ratelimit-header-parser");

const [url, reset] = process.argv.slice(2);

fetch(url, { headers: { "x-account": "alice" } }).then((response) => {
  const told = parseRateLimit(response, { reset });
  const seconds = Math.round((told.reset.getTime() - Date.now()) / 1000);
  console.log(response.status, told.limit, told.used, told.remaining, seconds);
});
