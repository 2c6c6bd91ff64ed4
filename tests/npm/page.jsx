// A page with one component, that of the documents.
import { createRoot } from "react-dom/client"
import { Items } from "./items.tsx"

createRoot(document.getElementById("root")).render(<Items />)
