// Reads the API that this page was served by. Relative addresses, so that a proxy may put it below a path.

export class Problem extends Error {
  constructor(status, detail, hint) {
    super(detail);
    this.status = status;
    this.hint = hint;
  }
}

/** The JSON at a path. Problem when it is not answered with one. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  let answer;
  try {
    answer = await fetch(query.size ? `${path}?${query}` : path, { headers: { Accept: "application/json" } });
  } catch {
    throw new Problem(0, "The daemon does not answer.", "Is it running? systemctl status inquestd");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, content.detail ?? answer.statusText, content.hint ?? "");
  return content;
}

/** One crash as plain text, as `inquest show` prints it. */
export async function asText(id) {
  const answer = await fetch(`crashes/${id}`, { headers: { Accept: "text/plain" } });
  if (!answer.ok) throw new Problem(answer.status, answer.statusText, "");
  return answer.text();
}

const KINDS = ["crash", "amended", "start-limit", "run-ended", "run-started", "run-ready", "hang", "answering", "reset"];

/** Follows what happens. `on(kind, data)` is called for each event, `state(word)` with `live` or `away`. The browser
 * comes back by itself with the last id it had; after a refusal it would not, so that is done here. */
export function follow(on, state) {
  let lastId = "";
  const open = () => {
    const stream = new EventSource(lastId ? `events?after=${encodeURIComponent(lastId)}` : "events");
    stream.onopen = () => state("live");
    stream.onerror = () => {
      state("away");
      if (stream.readyState === EventSource.CLOSED) setTimeout(open, 3000);
    };
    for (const kind of KINDS) {
      stream.addEventListener(kind, (event) => {
        lastId = event.lastEventId;
        on(kind, JSON.parse(event.data));
      });
    }
  };
  open();
}
