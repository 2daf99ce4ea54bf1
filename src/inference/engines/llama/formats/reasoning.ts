/** The marks around the reasoning and the answer of a model. */

export interface ReasoningMarks {
  readonly open: string
  readonly close: string
  readonly marks?: readonly string[]
  /** A text that identifies templates with these marks. Default: either of the marks. */
  readonly templateText?: string
  readonly keepsOpenMark?: boolean
  /**
   * Whether the marks are control tokens. If so, reasoning may follow text, and unpaired marks are
   * removed.
   */
  readonly areControlTokens?: boolean
}

const defaultMarks: ReasoningMarks = { open: '<think>', close: '</think>' }

/** The known marks. The first pair with a mark in the template is used. */
const knownReasoningMarks: readonly ReasoningMarks[] = [
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<|channel>thought', close: '<channel|>', marks: ['<|channel>'], areControlTokens: true },
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
  { open: '◁think▷', close: '◁/think▷' },
  { open: '<reasoning>', close: '</reasoning>' },
  { open: '<mm:think>', close: '</mm:think>' },
  { open: '<think:opensource>', close: '</think:opensource>', templateText: ':opensource' },
  {
    open: '<|open|>think<|sep|>',
    close: '<|close|>think<|sep|>',
    marks: ['<|open|>', '<|close|>', '<|sep|>'],
    templateText: '<|open|>',
  },
  {
    open: 'Here are my reasoning steps:\n',
    close: '[BEGIN FINAL RESPONSE]',
    templateText: 'Here are my reasoning steps:',
    keepsOpenMark: true,
  },
  defaultMarks,
  {
    open: '<|think|>',
    close: '<|end|>',
    marks: ['<|begin|>', '<|content|>', '<|tool_calls|>', '<|calls|>'],
    templateText: '<|begin|>assistant<|think|>',
  },
]

export const findReasoningMarks = (template: string): ReasoningMarks =>
  knownReasoningMarks.find(({ open, close, templateText }) =>
    (templateText === undefined ? [open, close] : [templateText]).some((text) =>
      template.includes(text),
    ),
  ) ?? defaultMarks

export const opensReasoning = (prompt: string, { open }: ReasoningMarks): boolean =>
  prompt.trimEnd().endsWith(open.trimEnd())

export interface AnswerMarks {
  /** Marks that begin an answer. They also end reasoning. */
  readonly opens: readonly string[]
  readonly closes: readonly string[]
  /** A text that identifies templates with these marks. Default: the first mark. */
  readonly templateText?: string
}

/** The known marks. The first entry whose text occurs in the template is used. */
const knownAnswerMarks: readonly AnswerMarks[] = [
  { opens: ['<|START_RESPONSE|>'], closes: ['<|END_RESPONSE|>'] },
  { opens: ['<|START_TEXT|>'], closes: ['<|END_TEXT|>'] },
  { opens: ['<|CHATBOT_TOKEN|>'], closes: ['<|END_OF_TURN_TOKEN|>'] },
  { opens: [], closes: ['<|message_sep|>'] },
  {
    opens: ['<|open|>response<|sep|>'],
    closes: ['<|close|>response<|sep|>', '<|close|>message<|sep|>'],
    templateText: '<|open|>',
  },
  {
    opens: ['<|content|>'],
    closes: ['<|begin|>assistant', '<|tool_calls|>', '<|calls|>', '<|end|>'],
    templateText: '<|begin|>assistant<|content|>',
  },
]

const noAnswerMarks: AnswerMarks = { opens: [], closes: [] }

export const findAnswerMarks = (template: string): AnswerMarks =>
  knownAnswerMarks.find(({ opens, closes, templateText }) =>
    template.includes(templateText ?? opens[0] ?? closes[0] ?? ''),
  ) ?? noAnswerMarks
