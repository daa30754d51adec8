/* Keys, refresh and clocks. Every page works without this file; nothing here decides anything. */
"use strict";

(() => {
  const OFF = "console-keys-off";
  const PERIOD = 5000;
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // --- forms: one press sends once; a form with something in it is dirty ---------------------

  let dirty = false;
  const onlyRead = (form) => !form || form.method === "get";

  document.addEventListener("input", (event) => {
    if (!onlyRead(event.target.form)) dirty = true;
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (onlyRead(form)) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
    const pressed = event.submitter;
    // After the browser has read the form: a disabled button would not be sent.
    setTimeout(() => {
      for (const button of all("button", form)) button.disabled = true;
      if (pressed) pressed.setAttribute("aria-busy", "true");
    }, 0);
  });

  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const form of all("form[data-sent]")) {
      delete form.dataset.sent;
      for (const button of all("button", form)) button.disabled = false;
    }
  });

  // --- clocks: relative times stay true; a question that runs out closes its buttons ---------

  const skew = (() => {
    const server = document.body.dataset.now || find("[data-now]")?.dataset.now;
    return server ? Date.parse(server) - Date.now() : 0;
  })();

  const span = (milliseconds) => {
    let seconds = Math.floor(Math.abs(milliseconds) / 1000);
    const parts = [];
    for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      if (count || (name === "s" && !parts.length)) parts.push(`${count} ${name}`);
    }
    return parts.slice(0, 2).join(" ");
  };

  const tick = () => {
    const now = Date.now() + skew;
    for (const time of all("time[data-relative]")) {
      const left = Date.parse(time.dateTime) - now;
      const words = Math.abs(left) < 1000 ? "now" : left > 0 ? `in ${span(left)}` : `${span(left)} ago`;
      if (time.textContent !== words) time.textContent = words;
    }
    for (const box of all("[data-expires]")) {
      if (Date.parse(box.dataset.expires) > now || box.dataset.over) continue;
      box.dataset.over = "1";
      for (const button of all("button", box)) button.disabled = true;
      const said = find("[data-expired]", box);
      if (said) said.hidden = false;
    }
  };

  // --- refresh: the marked parts of the page, while nobody writes and the page is seen -------

  let paused = false;
  const busy = () =>
    paused || dirty || document.hidden || Boolean(find("details[open] form")) ||
    document.activeElement?.matches("input, textarea, select");

  const rowsOf = (root) => all("[data-row]", root).map((row) => row.dataset.row);

  const announce = (count, show) => {
    let bar = find("#news");
    if (!bar) {
      bar = document.createElement("p");
      bar.id = "news";
      bar.className = "notice notice-wait";
      bar.setAttribute("role", "status");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "button plain";
      bar.append(button);
      find("[data-live]").before(bar);
    }
    const button = find("button", bar);
    button.textContent = `${count} new: show`;
    button.onclick = () => { bar.remove(); show(); };
  };

  const swap = (old, fresh) => {
    const open = all("details[open] > summary", old).map((item) => item.textContent);
    old.replaceChildren(...document.importNode(fresh, true).childNodes);
    for (const item of all("details > summary", old)) {
      if (open.includes(item.textContent)) item.parentElement.open = true;
    }
    mark();
    tick();
  };

  const take = (page) => {
    for (const old of all("[data-live]")) {
      const fresh = old.id ? page.getElementById(old.id) : null;
      if (!fresh || fresh.innerHTML === old.innerHTML) continue;
      const known = new Set(rowsOf(old));
      const news = rowsOf(fresh).filter((key) => !known.has(key)).length;
      if (known.size && news) announce(news, () => swap(old, fresh));
      else swap(old, fresh);
    }
  };

  const refresh = async () => {
    if (busy() || !find("[data-live]")) return;
    try {
      const answer = await fetch(location.href, { headers: { "X-Console-Refresh": "1" }, redirect: "error" });
      if (!answer.ok || busy()) return;
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The next refresh tries again; the page stays as it is.
    }
  };

  // --- rows under the keys ---------------------------------------------------------------------

  let chosen = "";
  const lines = () => all("tr[data-row]");
  const mark = () => {
    for (const line of lines()) line.classList.toggle("chosen", line.dataset.row === chosen);
  };
  const step = (by) => {
    const rows = lines();
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.dataset.row === chosen);
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
    chosen = next.dataset.row;
    mark();
    next.scrollIntoView({ block: "nearest" });
    find("a", next)?.focus({ preventScroll: true });
  };

  // --- keys ------------------------------------------------------------------------------------

  const GO = { h: "", q: "review/", r: "runs/run/", u: "unknown/", s: "stuck/" };
  let going = false;
  const off = () => localStorage.getItem(OFF) === "1";

  const press = (target) => {
    if (!target || target.disabled) return false;
    for (let box = target.closest("details"); box; box = box.parentElement?.closest("details")) box.open = true;
    if (target.matches("a")) target.click();
    else if (target.matches("summary")) { target.parentElement.open = true; find("input, textarea, select, button", target.parentElement)?.focus(); }
    else if (target.matches("button") && !("confirm" in target.dataset)) target.click();
    else target.focus();
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || off()) return;
    const at = event.target;
    if (at.isContentEditable || (at.matches("input, textarea, select") && !["radio", "checkbox"].includes(at.type))) {
      if (event.key === "Escape") at.blur();
      return;
    }
    const key = event.key;
    if (going) {
      going = false;
      if (key in GO) location.assign(new URL(GO[key], new URL("/admin/", location)));
      return;
    }
    const marked = find(`[data-key="${CSS.escape(key)}"]`);
    if (key === "g") going = true;
    else if (key === "?") location.assign("/admin/help/");
    else if (key === ".") { paused = !paused; document.body.classList.toggle("paused", paused); }
    else if (marked && press(marked)) event.preventDefault();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "o") find("tr.chosen a")?.click();
    else if (key === "x") find("tr.chosen input[type=checkbox]")?.click();
  });

  const knob = find("[data-keys-switch]");
  if (knob) {
    const say = () => { knob.textContent = off() ? "Switch the keys on" : "Switch the keys off"; };
    knob.hidden = false;
    knob.addEventListener("click", () => { localStorage.setItem(OFF, off() ? "0" : "1"); say(); });
    say();
  }

  setInterval(tick, 1000);
  setInterval(refresh, PERIOD);
  tick();
})();
