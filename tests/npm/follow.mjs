// Follows a table with the npm client as it is. Prints lines of JSON: the rows whenever they change, what came, errors.
// Does what lines of its input say: {"abort": true}, {"snapshot": {"where": ...}}.
import { createInterface } from "node:readline"
import { Shape, ShapeStream } from "@electric-sql/client"

const tell = (told) => console.log(JSON.stringify(told, (_, value) => (typeof value === "bigint" ? String(value) : value)))
const leaving = new AbortController()
const stream = new ShapeStream({
  ...JSON.parse(process.argv[2]),
  signal: leaving.signal,
  onError: (error) => tell({ error: String(error) }),
})
stream.subscribe((messages) => tell({ messages }))
new Shape(stream).subscribe(({ rows }) => tell({ rows }))

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  if (command.snapshot) await stream.requestSnapshot(command.snapshot)
  if (command.abort) {
    leaving.abort()
    tell({ has_left: true })
  }
}
