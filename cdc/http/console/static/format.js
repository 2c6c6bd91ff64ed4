// Numbers as people read them. Places in the WAL have 64 bits: they are BigInt, and only distances become numbers.

const SIZES = [["TB", 2 ** 40], ["GB", 2 ** 30], ["MB", 2 ** 20], ["kB", 2 ** 10]];
const SPANS = [["days", 86400], ["h", 3600], ["min", 60]];

export const NOTHING = "–";

/** Bytes. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return NOTHING;
  const [name, unit] = SIZES.find(([, one]) => bytes >= one) ?? ["B", 1];
  const value = bytes / unit;
  return `${unit === 1 ? Math.round(value) : value.toFixed(value < 10 ? 1 : 0)} ${name}`;
}

export function perSecond(words) {
  return words === NOTHING ? words : `${words}/s`;
}

/** Seconds. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  const [name, unit] = SPANS.find(([, one]) => seconds >= 2 * one) ?? ["s", 1];
  const value = seconds / unit;
  return `${value.toFixed(value < 10 ? 1 : 0)} ${name}`;
}

export function count(number) {
  return number === null || number === undefined ? NOTHING : Math.round(number).toLocaleString("en");
}

/** Events per second, as few as they may be: seldom is not never. */
export function rate(number) {
  if (number === null || number === undefined) return NOTHING;
  return perSecond(number > 0 && number < 10 ? number.toFixed(1) : count(number));
}

/** A time of the day; with the day where it is not today's. */
export function clock(milliseconds) {
  const at = new Date(milliseconds);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** `16/B374D848` as a number; null for null. */
export function lsn(text) {
  if (!text) return null;
  const [high, low] = text.split("/");
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

export function lsnText(value) {
  return `${(value >> 32n).toString(16)}/${(value & 0xffffffffn).toString(16)}`.toUpperCase();
}

/** The transaction of an offset such as `26914688_0`, which is a place in the WAL; null within a snapshot. */
export function place(offset) {
  const tx = offset ? BigInt(offset.split("_")[0]) : 0n;
  return tx > 0n ? tx : null;
}
