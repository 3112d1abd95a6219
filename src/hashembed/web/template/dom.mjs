// What the parts of the page share. Strings become text, never markup.

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element; its children are nodes, or strings that become text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** A label or an n-gram, isolated from the direction of the writing around it. */
export const isolated = (text, attributes) => element("bdi", attributes, visible(text) || "(empty)");

/** A span whose CSS variable is a number; its width or colour follows from that. */
export function measured(attributes, name, value) {
  const made = element("span", attributes);
  made.style.setProperty(name, String(value));
  return made;
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

/** The text with visible characters instead of control characters, of the same length. */
export function visible(text) {
  return text.replace(UNSEEN, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** 0.9731 -> "97.3%". */
export function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1%";
  if (share < 1 && share > 0.999) return ">99.9%";
  return `${(100 * share).toFixed(1)}%`;
}

/** 0.5 -> "+0.500". */
export const signed = (value) => `${value < 0 ? "-" : "+"}${Math.abs(value).toFixed(3)}`;

/** 1234 -> "1,234". */
export const count = (number) => number.toLocaleString("en");

/** "1 text", "2 texts". */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Lets the browser paint and react before the work goes on. */
export const breathe = () => new Promise((done) => setTimeout(done, 0));
