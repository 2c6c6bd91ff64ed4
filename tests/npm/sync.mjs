// Reads a shape once, up to its end, with the npm client as it is; keeps nothing, and says how many rows came in which
// time: {"rows": n, "seconds": s}.
import { ShapeStream } from "@electric-sql/client"

const leaving = new AbortController()
const stream = new ShapeStream({ ...JSON.parse(process.argv[2]), signal: leaving.signal })
const began = performance.now()
let rows = 0
stream.subscribe((messages) => {
  for (const { headers } of messages) {
    if (headers.operation) rows += 1
    if (headers.control !== "up-to-date" || leaving.signal.aborted) continue
    console.log(JSON.stringify({ rows, seconds: (performance.now() - began) / 1000 }))
    leaving.abort()
  }
})
