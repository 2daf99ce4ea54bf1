/** Colours and fonts of the report and the dashboard: light and dark. */

/** The number of colours for names. */
export const nameColours = 10

const lightColours = `--bg: #fcfcfa; --fg: #1b1d1f; --muted: #565c63; --line: #d9dbd6;
  --card: #ffffff; --good: #17663a; --warning: #855000; --bad: #b3261e; --idle: #cfd3d6;
  --c0: #2f6f9f; --c1: #c77700; --c2: #2e8b6f; --c3: #8a5aa8; --c4: #b5508a; --c5: #5f7d2e;
  --c6: #4b5bb5; --c7: #8c6d46; --c8: #00798c; --c9: #a8442a; --c10: #7a3e9d;`

const darkColours = `--bg: #14171a; --fg: #e7e9ea; --muted: #a4abb3;
  --line: #343a40; --card: #1b1f23; --good: #6fcf97; --warning: #f0b35b; --bad: #ff8a80;
  --idle: #454c53; --c0: #6aaede; --c1: #e6a23c; --c2: #5cc0a0; --c3: #b893d3; --c4: #df8bbb;
  --c5: #a3c25f; --c6: #939ff0; --c7: #c7a87c;
  --c8: #4fc3d4; --c9: #e39a82; --c10: #c79be0;`

/** The colours on paper: black text on white, whatever the screen shows. */
export const paperColours = `${lightColours}
  --bg: #fff; --card: #fff; --fg: #000; --muted: #444; --line: #bbb; --idle: #ddd;`

const fonts = `--text-font: system-ui, "Segoe UI", "Noto Sans", sans-serif;
  --code-font: ui-monospace, "SFMono-Regular", Menlo, monospace;`

const colourRules = Array.from(
  { length: nameColours },
  (_, at) => `.c${at} { fill: var(--c${at}); background: var(--c${at}); }`,
).join('\n')

/** Defines colours and fonts as variables. The classes `c0` to `c9` colour shapes and boxes. */
export const paletteStyle = `
:root { color-scheme: light dark; ${fonts}
  ${lightColours} }
@media (prefers-color-scheme: dark) { :root { ${darkColours} } }
${colourRules}
.idle { fill: var(--idle); background: var(--idle); }
.red { fill: var(--bad); background: var(--bad); }
.grey { fill: var(--muted); background: var(--muted); }
`
