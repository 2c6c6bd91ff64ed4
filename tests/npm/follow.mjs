// Follows a table with the npm client as it is, and prints its rows, as one line of JSON, whenever they change.
import { Shape, ShapeStream } from "@electric-sql/client"

const [url, params, liveSse] = process.argv.slice(2)
const stream = new ShapeStream({
  url,
  params: JSON.parse(params),
  liveSse: liveSse === "sse",
  onError: (error) => console.log(JSON.stringify({ error: String(error) })),
})
const asText = (_, value) => (typeof value === "bigint" ? String(value) : value)
new Shape(stream).subscribe(({ rows }) => console.log(JSON.stringify({ rows }, asText)))
