// What the page asks of its server. Every wait has a bound; the secret stays in this tab.

const ANSWER_MS_MAX = 15000;
const ROOT = new URL("../v1/admin/", import.meta.url);
const KEPT_AS = "shapelog-secret";

/** The server wants a secret that we do not have, or not this one. */
export class SecretWanted extends Error {}

/** The server said no; `facts` has its code, message and hint. */
export class Refused extends Error {
  constructor(facts) {
    super(facts.message);
    this.facts = facts;
  }
}

export function hasSecret() {
  return sessionStorage.getItem(KEPT_AS) !== null;
}

export function keepSecret(text) {
  sessionStorage.setItem(KEPT_AS, text);
}

/** An answer as it comes, whatever its status; but for 401. */
export async function ask(path, { signal, ms = ANSWER_MS_MAX } = {}) {
  const bound = AbortSignal.timeout(ms);
  const secret = sessionStorage.getItem(KEPT_AS);
  // As bytes, each a letter: a header takes no others, and the server reads it so.
  const bytes = secret === null ? "" : String.fromCharCode(...new TextEncoder().encode(secret));
  const answer = await fetch(new URL(path, ROOT), {
    headers: secret === null ? {} : { authorization: `Bearer ${bytes}` },
    signal: signal ? AbortSignal.any([signal, bound]) : bound,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (answer.status === 401) throw new SecretWanted();
  return answer;
}

/** An answer as JSON. */
export async function askJson(path, options) {
  const answer = await ask(path, options);
  const type = answer.headers.get("content-type") ?? "";
  if (!type.startsWith("application/json")) throw new Error(`the server answers ${answer.status}`);
  const facts = await answer.json();
  if (!answer.ok) throw new Refused(facts.error ?? { message: `the server answers ${answer.status}` });
  return facts;
}
