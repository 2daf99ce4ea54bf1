/** The chat template of a model. Trial renderings at load time show what it supports. */

import { systemClock } from '../../../../foundation/clock.ts'
import { messageOf, tryRead } from '../../../../foundation/errors.ts'
import { TemplateLimitError } from '../jinja/limits.ts'
import { JinjaTemplate, strftime } from '../jinja/template.ts'
import type { TemplateNames } from '../jinja/scope.ts'

/** What a template supports. Conversations are rewritten to avoid everything else. */
export interface TemplateTraits {
  /** Whether system messages are supported. If not, they become part of the first user message. */
  readonly hasSystemRole: boolean
  /** Whether consecutive messages of the same role are supported. If not, they are joined. */
  readonly allowsSameRole: boolean
  /** Whether tools are supported. If not, tools are described in prose, and calls are text. */
  readonly rendersTools: boolean
  /** Where tools are read: in a variable, or as JSON in the system message (Phi-4 mini). */
  readonly toolsIn: 'variable' | 'system'
  /** Whether calls are supported. If not, they are written as assistant text. */
  readonly rendersCalls: boolean
  readonly argumentsAs: 'object' | 'text'
  /** Whether a message may have several calls. If not, each call becomes a separate message. */
  readonly allowsParallelCalls: boolean
  /** The format of call ids: any, or nine letters and digits. */
  readonly callIds: 'any' | 'nine'
}

export interface ChatTemplate {
  readonly source: string
  readonly traits: TemplateTraits
  /** Texts that would be tokenized as control tokens. */
  readonly controlTexts: readonly string[]
  /** The reason why the template cannot render any message; `null` if it can. */
  readonly problem: string | null
  readonly readsNames: boolean
  /** The variables and members that the template reads; `null` if it cannot be parsed. */
  readonly names: TemplateNames | null
  render(variables: TemplateVariables): string
}

export interface TemplateVariables {
  readonly messages: readonly object[]
  readonly tools?: readonly object[]
  readonly [name: string]: unknown
}

export interface ChatTemplateOptions {
  readonly source: string
  readonly bos: string
  readonly eos: string
  readonly controls: readonly string[]
  readonly now?: () => Date
}

/** Never throws, because a model with an unusable template can still continue text. */
export function createChatTemplate(options: ChatTemplateOptions): ChatTemplate {
  const { source, bos, eos, controls } = options
  const { now = () => new Date(systemClock.now() * 1000) } = options
  const { render, names } = createRender(source, now)
  const isOld = !/\btools\b/.test(source)
  const renderAll = (variables: TemplateVariables): string =>
    render({
      bos_token: bos,
      eos_token: eos,
      ...(isOld ? legacyVariables(variables, now()) : {}),
      ...variables,
    })
  const failure = findFailure(renderAll)
  // A template that exceeds a limit is not probed, because it would exceed it every time.
  const contains = createProbe(failure instanceof TemplateLimitError ? () => '' : renderAll)
  return {
    source,
    controlTexts: controls,
    traits: probeTraits(contains),
    problem: failure === null ? null : messageOf(failure),
    readsNames: contains({ messages: [{ ...userMessage, name: nameMark }] }, nameMark),
    names,
    render: renderAll,
  }
}

/** The variables that the template of firefunction reads instead of `tools`. */
const legacyVariables = ({ tools = [] }: TemplateVariables, now: Date): object => ({
  functions: JSON.stringify(tools),
  datetime: strftime('%b %d %Y %H:%M:%S', now),
})

function createRender(
  source: string,
  now: () => Date,
): { readonly render: (variables: object) => string; readonly names: TemplateNames | null } {
  try {
    const template = new JinjaTemplate(source, now)
    return { render: (variables) => template.render(variables), names: template.names }
  } catch (error) {
    const render = (): never => {
      throw error
    }
    return { render, names: null }
  }
}

type Render = (variables: TemplateVariables) => string

/** Texts for trial renderings. They occur in no template. */
const systemMark = 'system-probe-7c1'
const userMark = 'user-probe-7c2'
const argumentMark = 'argument-probe-7c3'
const resultMark = 'outcome-probe-7c4'
const toolMark = 'tool_probe_7c5'

const secondMark = 'second-probe-7c6'
const nameMark = 'name_probe_7c7'

const userMessage = { role: 'user', content: userMark }
const secondMessage = { role: 'user', content: secondMark }
const probeTools = [
  {
    type: 'function',
    function: {
      name: toolMark,
      description: 'Probes.',
      parameters: {
        type: 'object',
        properties: { probe: { type: 'string', description: 'A text.' } },
        required: ['probe'],
      },
    },
  },
]

function findFailure(render: Render): unknown {
  try {
    const text = render({ messages: [userMessage], add_generation_prompt: true })
    return text.includes(userMark) ? null : new Error('the template leaves out the message')
  } catch (error) {
    return error
  }
}

/** Whether the variables are rendered without an error, and the text contains all marks. */
type Probe = (variables: TemplateVariables, ...marks: readonly string[]) => boolean

const createProbe =
  (render: Render): Probe =>
  (variables, ...marks) => {
    const text = tryRead(() => render({ add_generation_prompt: true, ...variables }))
    return text !== undefined && marks.every((mark) => text.includes(mark))
  }

function probeTraits(contains: Probe): TemplateTraits {
  const loop = (form: CallStyle): boolean =>
    contains(
      { messages: callConversation(form), tools: probeTools },
      ...Array.from({ length: form.calls }, (_, at) => argumentMark + at),
      resultMark,
    )
  const forms = (['object', 'text'] as const).flatMap((argumentsAs) =>
    (['any', 'nine'] as const).map((callIds) => ({ argumentsAs, callIds, calls: 1 })),
  )
  const form = forms.find(loop)
  const system = { role: 'system', content: systemMark }
  const systemTools = { ...system, tools: JSON.stringify(probeTools) }
  const rendersTools = contains({ messages: [userMessage], tools: probeTools }, toolMark)
  const rendersOfSystem = contains({ messages: [systemTools, userMessage] }, toolMark)
  const knowsOutcomes =
    form !== undefined || contains({ messages: textConversation, tools: probeTools }, resultMark)
  return {
    hasSystemRole: contains({ messages: [system, userMessage] }, systemMark, userMark),
    allowsSameRole: contains({ messages: [userMessage, secondMessage] }, userMark, secondMark),
    rendersTools: knowsOutcomes && (rendersTools || rendersOfSystem),
    toolsIn: rendersTools || !rendersOfSystem ? 'variable' : 'system',
    rendersCalls: form !== undefined,
    argumentsAs: form?.argumentsAs ?? 'object',
    callIds: form?.callIds ?? 'any',
    allowsParallelCalls: form !== undefined && loop({ ...form, calls: 2 }),
  }
}

interface CallStyle {
  readonly argumentsAs: 'object' | 'text'
  readonly callIds: 'any' | 'nine'
  readonly calls: number
}

const textConversation = [
  userMessage,
  { role: 'assistant', content: argumentMark },
  { role: 'tool', content: resultMark, tool_call_id: 'abcdefgh1', name: toolMark },
]

function callConversation({ argumentsAs, callIds, calls }: CallStyle): readonly object[] {
  const argumentsOf = (at: number): object => ({ probe: argumentMark + at })
  const ids = Array.from({ length: calls }, (_, at) =>
    callIds === 'nine' ? `abcdefgh${at}` : `call_probe_of_any_form_${at}`,
  )
  return [
    userMessage,
    {
      role: 'assistant',
      content: '',
      tool_calls: ids.map((id, at) => ({
        id,
        type: 'function',
        function: {
          name: toolMark,
          arguments: argumentsAs === 'object' ? argumentsOf(at) : JSON.stringify(argumentsOf(at)),
        },
      })),
    },
    ...ids.map((id) => ({
      role: 'tool',
      content: resultMark,
      tool_call_id: id,
      name: toolMark,
    })),
  ]
}
