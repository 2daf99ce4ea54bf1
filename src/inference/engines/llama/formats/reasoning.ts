/** How models mark what they think before they answer. */

export interface ReasoningMarks {
  readonly open: string
  readonly close: string
  /** Control tokens that are a part of them. */
  readonly marks?: readonly string[]
}

/** The first whose marks a template contains. */
const known: readonly ReasoningMarks[] = [
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<|channel>thought', close: '<channel|>', marks: ['<|channel>'] },
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
  { open: '◁think▷', close: '◁/think▷' },
  { open: '<reasoning>', close: '</reasoning>' },
  { open: '<think>', close: '</think>' },
]

/** What most models use, also where the template does not tell. */
const usual: ReasoningMarks = { open: '<think>', close: '</think>' }

export const reasoningMarksOf = (template: string): ReasoningMarks =>
  known.find(({ open, close }) => template.includes(open) || template.includes(close)) ?? usual

/** Whether a prompt ends inside of reasoning, because the template has opened it. */
export const opensReasoning = (prompt: string, { open }: ReasoningMarks): boolean =>
  prompt.trimEnd().endsWith(open)
