// The npm package `redlock`, for bench_redlock --peer:
//
//   npm install redlock@4 ioredis     (anywhere; run from there)
//   bench_redlock --only peer --peer "node .../npm_redlock.mjs"
//
// Arguments: the ports of the servers. Each line it reads is a number of pairs
// to grant and release; it answers with the seconds that they took.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis").Redis;
const Redlock = require("redlock");

const servers = process.argv
  .slice(2)
  .map((port) => new Redis({ host: "127.0.0.1", port: Number(port) }));
const redlock = new Redlock(servers, { retryCount: 0 });
for await (const line of createInterface({ input: process.stdin })) {
  const start = process.hrtime.bigint();
  for (let left = Number(line); left > 0; --left) {
    const lock = await redlock.lock("peer:one", 60000);
    await lock.unlock();
  }
  console.log(Number(process.hrtime.bigint() - start) / 1e9);
}
process.exit(0);
