// Knows when a tab of the dashboard is at rest. Run in it before Streamlit's front end, with the numbers of Streamlit's
// protocol. Streamlit changes the URL and the widgets before the server has heard of it, so the page alone cannot tell
// that a run of the script is to come: what goes over the websocket can.
(numbers) => {
  const FRAMES = 6; // 0.1 s where the machine is idle, and longer where it is not
  const run = { asked: 0, waits: false, whole: false, begun: false };
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
    const asked = new Map(fields(bytes)).get(numbers.rerun);
    const state = asked && new Map(fields(asked));
    if (state?.get(numbers.auto)) window.tickAgain = () => socket.send(bytes);
    if (!state || state.get(numbers.auto)) return; // a part that runs every second keeps no page from being at rest
    Object.assign(run, { asked: run.asked + 1, waits: true, begun: false });
    run.whole ||= !state.get(numbers.fragment)?.length;
    quiet = 0;
  };

  const heard = (bytes) => {
    if (run.waits) quiet = 0; // what else comes changes the page, or nothing
    for (const [number, value] of fields(bytes)) {
      if (number === numbers.begins) run.begun = true;
      const last = value !== numbers.early && !(run.whole && value === numbers.part);
      if (number === numbers.ends && run.begun && last) Object.assign(run, { waits: false, whole: false });
    }
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
  const drawn = () => // a file of charts has no script that runs
    !(location.protocol.startsWith("http") && runs()) && document.readyState === "complete" &&
    [...document.querySelectorAll("[class*=_chart] .stBidiComponent, .js-plotly-plot")].every((e) => e.querySelector(".main-svg")) &&
    none("[data-waits]");
  const moves = (animation) =>
    animation.playState === "running" && animation.effect.getComputedTiming().endTime !== Infinity;

  const ticks = ({ type, attributeName: name, target }) => // what a part that runs every second changes in the page
    type === "characterData" ? target.parentElement?.closest(".st-key-header")
      : ["data-stale", "data-test-script-state"].includes(name)
        || name === "class" && target.dataset.testid === "stElementContainer";

  new MutationObserver((seen) => { if (!seen.every(ticks)) quiet = 0; }).observe(
    document, { subtree: true, childList: true, attributes: true, characterData: true });

  window.runsAsked = () => run.asked;
  window.hasRun = (asked) => run.asked > asked && !run.waits; // since so many runs were asked for
  window.isAtRest = (number) => { // asked once a frame; a new number is a new look
    if (number !== look || run.waits || !drawn() || document.getAnimations().some(moves)) quiet = 0;
    look = number;
    return quiet++ >= FRAMES;
  };
}
