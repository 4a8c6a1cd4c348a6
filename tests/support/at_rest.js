// Knows when a tab of the dashboard is at rest. Run in it before Streamlit's front end, with the numbers of Streamlit's
// protocol. Streamlit changes the URL and the widgets before the server has heard of it, so the page alone cannot tell
// that a run of the script is to come: what goes over the websocket can.
(numbers) => {
  const CHARTS = "[class*=_chart] .stBidiComponent, .js-plotly-plot";
  const FRAMES = 6; // 0.1 s where the machine is idle, and longer where it is not
  const asked = new Map(); // fragment that was asked for, "" for the whole script: "waits", "runs" since, or was "cut" short
  const passed = new Map(); // fragment that waits: number of other runs that have ended since
  const decoder = new TextDecoder();
  let asks = 0;
  let last = "";
  let ended = 0;
  let quiet = 0;
  let look = 0;

  const varint = (bytes, at) => {
    let value = 0, place = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * place;
      place *= 128;
    } while (byte & 128);
    return [value, at];
  };

  function* fields(bytes) { // of a protobuf message: number and value, a part of the bytes where it is a message
    for (let at = 0; at < bytes.length;) {
      let tag, value;
      [tag, at] = varint(bytes, at);
      [value, at] = varint(bytes, at);
      const nested = (tag & 7) === 2;
      yield [tag >> 3, nested ? bytes.subarray(at, at + value) : value];
      at += nested ? value : 0;
    }
  }

  const said = (bytes, socket) => {
    const rerun = new Map(fields(bytes)).get(numbers.rerun);
    const state = rerun && new Map(fields(rerun));
    if (state?.get(numbers.auto)) window.tickAgain = () => socket.send(bytes);
    if (!state || state.get(numbers.auto)) return; // a part that runs every second keeps no page from being at rest
    asks += 1;
    last = decoder.decode(state.get(numbers.fragment) ?? new Uint8Array());
    asked.set(last, "waits");
    passed.set(last, 0);
    quiet = 0;
  };

  const fragments = (message) => { // of the run that a message is about: none where the whole script runs
    const run = new Map(fields(message.get(numbers.metadata) ?? [])).get(numbers.run) ?? [];
    return [...fields(run)].filter(([number]) => number === numbers.fragments).map(([, name]) => decoder.decode(name));
  };

  // A run that is cut short is followed by one of the same part, or of the whole script. If another part follows, it had ended:
  // Streamlit says of the end of a fragment that it came early where the next run begins before it is sent.
  const begins = (message) => {
    const parts = fragments(message);
    for (const [part, state] of asked) {
      if (!parts.length || parts.includes(part)) asked.set(part, "runs");
      else if (state === "cut") asked.delete(part);
    }
  };

  // A session runs one thing at a time: what has begun is over when anything ends. The end of its own run may never be sent,
  // for Streamlit forgets the last message of a run if a fragment is asked for just then. A part that waits while two others
  // end was not heard: the server ignores what is asked for a part that the last run of the script has left out.
  const ends = (early) => {
    ended += 1;
    for (const [part, state] of asked) {
      if (state === "runs" && early) asked.set(part, "cut");
      else if (state === "runs") asked.delete(part);
      else if (state === "waits" && passed.set(part, passed.get(part) + 1).get(part) > 1) asked.delete(part);
    }
  };

  const heard = (bytes) => {
    if (asked.size) quiet = 0; // what else comes changes the page, or nothing
    const message = new Map(fields(bytes));
    if (message.has(numbers.begins)) begins(message);
    if (message.has(numbers.ends)) ends(message.get(numbers.ends) === numbers.early);
  };

  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => heard(new Uint8Array(data)));
    }
    send(bytes) {
      said(bytes, this);
      super.send(bytes);
    }
  };

  const none = (selector) => !document.querySelector(selector);
  const runs = () => none("[data-testid=stApp][data-test-script-state=notRunning]") || !none("[data-testid=stSkeleton]");
  const seen = (element) => {
    const { width, height, top, bottom } = element.getBoundingClientRect();
    return width > 0 && height > 0 && bottom > 0 && top < innerHeight;
  };
  const complete = (place) => // a chart of a page that is out of sight may be drawn later
    place.querySelector(".main-svg") || place.querySelector(".rs-chart") && !seen(place);
  const drawn = () => // a file of charts has no script that runs
    !(location.protocol.startsWith("http") && runs()) && document.readyState === "complete" &&
    [...document.querySelectorAll(CHARTS)].every(complete) &&
    none("[data-waits]");
  const moves = (animation) =>
    animation.playState === "running" && animation.effect.getComputedTiming().endTime !== Infinity;

  const ticks = ({ type, attributeName: name, target }) => // what a part that runs every second changes in the page
    type === "characterData" ? target.parentElement?.closest(".st-key-header")
      : ["data-stale", "data-test-script-state"].includes(name)
        || name === "class" && target.dataset.testid === "stElementContainer";

  new MutationObserver((seen) => { if (!seen.every(ticks)) quiet = 0; }).observe(
    document, { subtree: true, childList: true, attributes: true, characterData: true });

  window.unrest = () => ({ // what keeps the tab from being at rest, in an error's words
    asked: [...asked.keys()].map((part) => part || "the whole script"),
    runs: Boolean(runs()),
    undrawn: [...document.querySelectorAll(CHARTS)].filter((place) => !complete(place)).map((place) => place.className),
    waiting: document.querySelectorAll("[data-waits]").length,
    moving: document.getAnimations().filter(moves).length,
  });
  window.runsAsked = () => asks;
  window.partAsked = () => last; // by the last of them, "" for the whole script
  window.runsEnded = () => ended; // with those of parts that run every second
  window.hasRun = (before) => asks > before && !asked.size; // since so many runs were asked for
  window.isAtRest = (number) => { // asked once a frame; a new number is a new look
    if (number !== look || asked.size || !drawn() || document.getAnimations().some(moves)) quiet = 0;
    look = number;
    return quiet++ >= FRAMES;
  };
}
