/** The style sheet of the report: light and dark, narrow and wide, screen and print. */

import { paletteStyle, paperColours } from '../../views/texts/palette.ts'

export const style = `${paletteStyle}* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.5 var(--text-font); }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--muted); margin: 0 0 4px;
  overflow-wrap: anywhere; }
.verdict { font-size: 1.6rem; line-height: 1.3; font-weight: 650; margin: 0 0 20px;
  padding-left: 14px; border-left: 5px solid var(--good); }
.verdict.warning { border-color: var(--warning); } .verdict.bad { border-color: var(--bad); }
h2 { font-size: 1.2rem; margin: 40px 0 10px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 20px 0 6px; overflow-wrap: anywhere; }
p { margin: 0 0 10px; max-width: 75ch; overflow-wrap: anywhere; }
.lead { font-size: 1.08rem; font-weight: 600; }
.muted, .caption, .facts dt { color: var(--muted); } .caption { margin: 0 0 4px; }
.box { border: 1px solid var(--warning); border-radius: 8px; padding: 10px 14px; margin: 0 0 20px;
  background: var(--card); }
.box ul { margin: 6px 0 0; padding-left: 20px; overflow-wrap: anywhere; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px;
  margin: 0 0 8px; padding: 0; list-style: none; }
.numbers li { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 12px; }
.numbers strong { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.numbers .bad { color: var(--bad); }
.scroll { overflow-x: auto; margin: 0 0 14px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: .92rem; }
th, td { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { white-space: nowrap; font-weight: 600; }
td { overflow-wrap: anywhere; min-width: 9ch; } td:first-child { min-width: 12ch; }
.n { min-width: 0; text-align: right; white-space: nowrap; }
.n + :not(.n) { padding-left: 12px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 12px; overflow-x: auto; margin: 6px 0;
  font: 13px/1.45 var(--code-font); }
code { font-family: var(--code-font); font-size: .92em; overflow-wrap: anywhere; }
.percents { display: grid; grid-template-columns: 1fr max-content; gap: 0 8px; }
.percents span { display: flex; flex-direction: column; justify-content: space-between;
  font-size: 11px; line-height: 1; color: var(--muted); text-align: right; }
.percents b { font-weight: 400; }
.percents svg { border-block: 1px solid var(--line); overflow: visible; }
svg { display: block; width: 100%; } svg text { fill: var(--muted); font-size: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; list-style: none; margin: 8px 0 14px;
  padding: 0; font-size: .9rem; } .legend i { display: inline-block; width: 12px; height: 12px;
  border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.lanes { display: grid; grid-template-columns: minmax(60px, 150px) 1fr; gap: 0 8px;
  align-items: start; } .lanes .names { font-size: 11px; line-height: 16px; color: var(--muted); }
.lanes .names div { height: 16px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  direction: rtl; text-align: left; } .lanes svg { background: var(--card); }
.axis { display: flex; justify-content: space-between; font-size: 11px; color: var(--muted);
  grid-column: 2; } .controls { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 8px; }
button, input, select { font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--muted); border-radius: 6px; padding: 4px 10px; max-width: 100%; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; }
.facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.up { color: var(--bad); } .down { color: var(--good); }
.edge { stroke: var(--muted); fill: none; }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c2); } .line2 { stroke: var(--c1); }
.line0, .line1, .line2 { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.node { fill: var(--card); stroke: var(--muted); } svg text.dark { fill: var(--fg); }
@media (max-width: 480px) { main { padding: 16px 12px 40px; } .verdict { font-size: 1.25rem; }
  .lanes { grid-template-columns: 56px 1fr; } .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: 6px; } table { font-size: .85rem; }
  th, td { padding-right: 7px; } td:first-child { min-width: 9ch; } }
.paper { display: none; }
@page { margin: 14mm 12mm; }
@media print { :root { font-size: 11px; ${paperColours} }
  body { font-size: 1rem; } main { max-width: none; padding: 0; } h2 { margin-top: 26px; }
  .controls, .screen { display: none; } .paper { display: block; }
  p { max-width: none; } pre { font-size: .9rem; }
  .numbers { grid-template-columns: repeat(6, 1fr); } .lanes { break-inside: avoid;
  break-after: avoid; }
  .scroll { overflow: visible; } .lanes { zoom: .85; }
  h2, h3, h2 + p, .caption, thead { break-after: avoid; }
  tr, svg, .numbers li { break-inside: avoid; }
  pre { white-space: pre-wrap; } * { print-color-adjust: exact;
  -webkit-print-color-adjust: exact; } }
`
