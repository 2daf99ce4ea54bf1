/** The marks around the reasoning that models write before their answer. */

export interface ReasoningMarks {
  readonly open: string
  readonly close: string
  /** Control tokens that are part of the marks. */
  readonly marks?: readonly string[]
}

/** The known marks; the first pair of which a template contains a mark is used. */
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

/** The marks of most models, used if the template contains none. */
const usual: ReasoningMarks = { open: '<think>', close: '</think>' }

export const reasoningMarksOf = (template: string): ReasoningMarks =>
  known.find(({ open, close }) => template.includes(open) || template.includes(close)) ?? usual

/** Whether a prompt ends within reasoning, because the template has begun it. */
export const opensReasoning = (prompt: string, { open }: ReasoningMarks): boolean =>
  prompt.trimEnd().endsWith(open)
