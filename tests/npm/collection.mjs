// A collection of TanStack DB over a shape. Prints its rows whenever they change. A line of input is a row to insert:
// it is shown at once, asked to be written by {"write": row}, and, once {"txid": n} answers that, kept when the
// transaction has come back through the shape: {"kept": id}.
import { createInterface } from "node:readline"
import { createCollection } from "@tanstack/db"
import { electricCollectionOptions } from "@tanstack/electric-db-collection"

const tell = (told) => console.log(JSON.stringify(told))
let written = () => {}
const items = createCollection(
  electricCollectionOptions({
    id: "items",
    getKey: (row) => row.id,
    shapeOptions: JSON.parse(process.argv[2]),
    onInsert: async ({ transaction }) => {
      const answer = new Promise((resolve) => (written = resolve))
      tell({ write: transaction.mutations[0].modified })
      return { txid: await answer, timeout: 30_000 }
    },
  }),
)
const show = () => tell({ rows: [...items.values()].map(({ id, v }) => ({ id, v })) })
items.subscribeChanges(show)
await items.preload()
show()

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  if (command.txid) written(command.txid)
  else {
    const kept = () => tell({ kept: command.id })
    items.insert(command).isPersisted.promise.then(kept, (error) => tell({ error: String(error) }))
  }
}
