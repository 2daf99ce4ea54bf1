/** The marks around the reasoning that models write before their answer, and around the answer. */

export interface ReasoningMarks {
  readonly open: string
  readonly close: string
  /** Control tokens that are part of the marks. */
  readonly marks?: readonly string[]
  /** The text that identifies templates with these marks. Default: one of the marks. */
  readonly sign?: string
  /** Whether `open` is a sentence of the model and thus part of the reasoning. */
  readonly keepsOpen?: boolean
  /**
   * Whether the marks are never text: reasoning may also begin after text, and unpaired marks are
   * dropped.
   */
  readonly isControl?: boolean
}

/** The known marks. The first pair that has a mark in the template is used. */
const known: readonly ReasoningMarks[] = [
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<|channel>thought', close: '<channel|>', marks: ['<|channel>'], isControl: true },
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
  { open: '◁think▷', close: '◁/think▷' },
  { open: '<reasoning>', close: '</reasoning>' },
  { open: '<mm:think>', close: '</mm:think>' },
  { open: '<think:opensource>', close: '</think:opensource>', sign: ':opensource' },
  {
    open: '<|open|>think<|sep|>',
    close: '<|close|>think<|sep|>',
    marks: ['<|open|>', '<|close|>', '<|sep|>'],
    sign: '<|open|>',
  },
  {
    open: 'Here are my reasoning steps:\n',
    close: '[BEGIN FINAL RESPONSE]',
    sign: 'Here are my reasoning steps:',
    keepsOpen: true,
  },
  { open: '<think>', close: '</think>' },
  {
    open: '<|think|>',
    close: '<|end|>',
    marks: ['<|begin|>', '<|content|>', '<|tool_calls|>', '<|calls|>'],
    sign: '<|begin|>assistant<|think|>',
  },
]

/** The marks of most models, used if the template contains no known marks. */
const defaultMarks: ReasoningMarks = { open: '<think>', close: '</think>' }

export const reasoningMarksOf = (template: string): ReasoningMarks =>
  known.find(({ open, close, sign }) =>
    (sign === undefined ? [open, close] : [sign]).some((text) => template.includes(text)),
  ) ?? defaultMarks

/** Whether a prompt ends within reasoning, because the template has begun it. */
export const opensReasoning = (prompt: string, { open }: ReasoningMarks): boolean =>
  prompt.trimEnd().endsWith(open.trimEnd())

/** Marks around an answer. They are not part of the answer. */
export interface AnswerMarks {
  /** Marks that begin an answer, and also end reasoning. */
  readonly opens: readonly string[]
  readonly closes: readonly string[]
  /** The text that identifies templates with these marks. Default: the first mark. */
  readonly sign?: string
}

/** The known marks. The first entry whose sign occurs in the template is used. */
const knownAnswers: readonly AnswerMarks[] = [
  { opens: ['<|START_RESPONSE|>'], closes: ['<|END_RESPONSE|>'] },
  { opens: ['<|START_TEXT|>'], closes: ['<|END_TEXT|>'] },
  { opens: ['<|CHATBOT_TOKEN|>'], closes: ['<|END_OF_TURN_TOKEN|>'] },
  { opens: [], closes: ['<|message_sep|>'] },
  {
    opens: ['<|open|>response<|sep|>'],
    closes: ['<|close|>response<|sep|>', '<|close|>message<|sep|>'],
    sign: '<|open|>',
  },
  {
    opens: ['<|content|>'],
    closes: ['<|begin|>assistant', '<|tool_calls|>', '<|calls|>', '<|end|>'],
    sign: '<|begin|>assistant<|content|>',
  },
]

const noMarks: AnswerMarks = { opens: [], closes: [] }

export const answerMarksOf = (template: string): AnswerMarks =>
  knownAnswers.find(({ opens, closes, sign }) =>
    template.includes(sign ?? opens[0] ?? closes[0] ?? ''),
  ) ?? noMarks
