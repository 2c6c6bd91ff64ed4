// The lake: how far its newest version is, what its tables have, and the versions before.

import { h } from "./dom.js";
import { NOTHING, clock, count, lsn, size } from "./format.js";
import { facts, panel } from "./parts.js";
import { known } from "./state.js";

export function lakeView() {
  const { lake, status } = known;
  if (lake === null) return panel("Lake", h("p", { class: "empty" }, "Asking the server …"));
  if (lake.folder === null) return panel("Lake", none("This server was not told of a lake.", "shapelog serve --lake DIR"));
  const [newest] = lake.versions;
  if (!newest) {
    return panel(
      "Lake",
      none(`There is no version in ${lake.folder} yet.`, `shapelog materialize --data-dir ${status.data_dir} --lake ${lake.folder} --every 5`),
    );
  }
  const behind = Number((lsn(status.global_flushed_lsn) ?? 0n) - lsn(newest.lsn));
  return [
    panel(
      `Version ${count(newest.number)}`,
      facts([
        ["Stands at", h("code", null, newest.lsn)],
        ["Last commit in it", moment(newest.committed_at)],
        ["Behind the logs", behind > 0 ? size(behind) : "nothing"],
        ["Folder", h("code", null, lake.folder)],
      ]),
      h("table", { class: "lake" }, tableHeads(), h("tbody", null, lake.tables.map(tableRow))),
    ),
    panel("Versions", h("table", { class: "lake" }, versionHeads(), h("tbody", null, lake.versions.map(versionRow)))),
  ];
}

function none(text, command) {
  return h("p", { class: "empty" }, text, " ", h("code", null, command));
}

/** Of a commit; none was seen since the slot was made if there is none. */
const moment = (seconds) => (seconds === null ? NOTHING : clock(seconds * 1000));

const head = (text, kind) => h("th", { scope: "col", class: kind }, text);
const cell = (value) => h("td", { class: "number" }, value);

function tableHeads() {
  return h("thead", null, h("tr", null, head("Table"), head("Rows", "number"), head("Files", "number"), head("Size", "number"), head("Changes", "number wide"), head("Files", "number wide"), head("Size", "number wide")));
}

function tableRow(table) {
  const { state, changes } = table;
  return h(
    "tr",
    { "data-key": table.name },
    h("td", null, table.name, remarks(table)),
    cell(count(state?.rows)),
    cell(count(state?.files)),
    cell(size(state?.bytes)),
    h("td", { class: "number wide" }, count(changes?.rows)),
    h("td", { class: "number wide" }, count(changes?.files)),
    h("td", { class: "number wide" }, size(changes?.bytes)),
  );
}

function remarks(table) {
  const told = [
    table.generation > 1 ? `generation ${table.generation}` : null,
    table.quarantined ? `${count(table.quarantined)} values quarantined` : null,
  ].filter(Boolean);
  return told.length ? h("span", { class: "definition" }, told.join(", ")) : null;
}

function versionHeads() {
  return h("thead", null, h("tr", null, head("Version"), head("LSN"), head("Last commit"), head("Tables", "number")));
}

function versionRow(version) {
  return h(
    "tr",
    { "data-key": version.number },
    h("td", null, count(version.number)),
    h("td", null, h("code", null, version.lsn)),
    h("td", null, moment(version.committed_at)),
    cell(count(version.tables)),
  );
}
