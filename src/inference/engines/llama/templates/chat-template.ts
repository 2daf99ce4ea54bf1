/** The chat template of a model. Trial renderings at load time determine what it supports. */

import { systemClock } from '../../../../foundation/clock.ts'
import { messageOf } from '../../../../foundation/errors.ts'
import { TooCostly } from '../jinja/limits.ts'
import { JinjaTemplate, strftime } from '../jinja/template.ts'
import type { TemplateNames } from '../jinja/syntax/template-names.ts'

/** The features that a template supports. Conversations are rewritten to avoid all others. */
export interface TemplateTraits {
  /** If false, the text of system messages is put into the first user message. */
  readonly hasSystemRole: boolean
  /** Whether consecutive messages may have the same role; if false, such messages are joined. */
  readonly allowsNeighbours: boolean
  /**
   * Whether the template renders tools. If false, they are described in prose, and calls are text.
   */
  readonly knowsTools: boolean
  /**
   * Where the template reads tools: a variable, or JSON text in the system message (Phi-4 mini).
   */
  readonly toolsIn: 'variable' | 'system'
  /**
   * Whether the template renders an assistant's calls. If false, calls are written as assistant
   * text.
   */
  readonly knowsCalls: boolean
  /** How the template expects the arguments of calls: as an object, or as JSON text. */
  readonly argumentsAs: 'object' | 'text'
  /** Whether one message may have several calls. */
  readonly allowsParallelCalls: boolean
  /** The format of call ids: any, or nine letters and digits. */
  readonly callIds: 'any' | 'nine'
}

export interface ChatTemplate {
  readonly source: string
  readonly traits: TemplateTraits
  /** Texts that would be tokenized as control tokens. */
  readonly controls: readonly string[]
  /** Why the template cannot render even one message; `null` if it can. */
  readonly problem: string | null
  /** Whether the template renders the name of a participant. */
  readonly readsNames: boolean
  /** The variables and members that the template reads; `null` if it cannot be parsed. */
  readonly names: TemplateNames | null
  /** Throws a `TemplateError`. */
  render(variables: TemplateVariables): string
}

/** The variables of a template: `messages`, `tools`, `add_generation_prompt`, and others. */
export interface TemplateVariables {
  readonly messages: readonly object[]
  readonly tools?: readonly object[]
  readonly [name: string]: unknown
}

export interface ChatTemplateOptions {
  readonly source: string
  /** The texts of the tokens that begin and end a text. */
  readonly bos: string
  readonly eos: string
  readonly controls: readonly string[]
  readonly now?: () => Date
}

const wallTime = (): Date => new Date(systemClock.now() * 1000)

/** Never throws: a model with an unusable template can still continue text. */
export function createChatTemplate(options: ChatTemplateOptions): ChatTemplate {
  const { source, bos, eos, controls, now = wallTime } = options
  const { render, names } = createRender(source, now)
  const isOld = !/\btools\b/.test(source)
  const renderAll = (variables: TemplateVariables): string =>
    render({
      bos_token: bos,
      eos_token: eos,
      ...(isOld ? oldVariables(variables, now()) : {}),
      ...variables,
    })
  const failure = failureOf(renderAll)
  // A template that exceeds a limit is not rendered again, because it would always exceed it.
  const probe: Render = failure instanceof TooCostly ? () => '' : renderAll
  return {
    source,
    controls,
    traits: probeTraits(probe),
    problem: failure === null ? null : messageOf(failure),
    readsNames: readsNames(probe),
    names,
    render: renderAll,
  }
}

/** Variables that the firefunction template reads instead of `tools`. */
const oldVariables = ({ tools = [] }: TemplateVariables, now: Date): object => ({
  functions: JSON.stringify(tools),
  datetime: strftime('%b %d %Y %H:%M:%S', now),
})

function createRender(
  source: string,
  now: () => Date,
): { readonly render: (variables: object) => string; readonly names: TemplateNames | null } {
  try {
    const template = new JinjaTemplate(source, now)
    return { render: (variables) => template.render(variables), names: template.names() }
  } catch (error) {
    const render = (): never => {
      throw error
    }
    return { render, names: null }
  }
}

type Render = (variables: TemplateVariables) => string

/** Probe texts that occur in no template. */
const systemMark = 'system-probe-7c1'
const userMark = 'user-probe-7c2'
const argumentMark = 'argument-probe-7c3'
const outcomeMark = 'outcome-probe-7c4'
const toolMark = 'tool_probe_7c5'

const secondMark = 'second-probe-7c6'
const nameMark = 'name_probe_7c7'

const user = { role: 'user', content: userMark }
const second = { role: 'user', content: secondMark }
const tools = [
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

function failureOf(render: Render): unknown {
  try {
    const text = render({ messages: [user], add_generation_prompt: true })
    return text.includes(userMark) ? null : new Error('the template leaves out the message')
  } catch (error) {
    return error
  }
}

function readsNames(render: Render): boolean {
  try {
    const messages = [{ ...user, name: nameMark }]
    return render({ messages, add_generation_prompt: true }).includes(nameMark)
  } catch {
    return false
  }
}

/** A feature is supported if the template renders it without an error and includes its text. */
function probeTraits(render: Render): TemplateTraits {
  const contains = (variables: TemplateVariables, ...marks: readonly string[]): boolean => {
    try {
      const text = render({ add_generation_prompt: true, ...variables })
      return marks.every((mark) => text.includes(mark))
    } catch {
      return false
    }
  }
  const loop = (form: CallForm): boolean =>
    contains(
      { messages: toolLoop(form), tools },
      ...Array.from({ length: form.calls }, (_, at) => argumentMark + at),
      outcomeMark,
    )
  const forms = (['object', 'text'] as const).flatMap((argumentsAs) =>
    (['any', 'nine'] as const).map((callIds) => ({ argumentsAs, callIds, calls: 1 })),
  )
  const form = forms.find(loop)
  const system = { role: 'system', content: systemMark }
  const systemTools = { ...system, tools: JSON.stringify(tools) }
  const rendersTools = contains({ messages: [user], tools }, toolMark)
  const rendersOfSystem = contains({ messages: [systemTools, user] }, toolMark)
  const knowsOutcomes = form !== undefined || contains({ messages: textLoop, tools }, outcomeMark)
  return {
    hasSystemRole: contains({ messages: [system, user] }, systemMark, userMark),
    allowsNeighbours: contains({ messages: [user, second] }, userMark, secondMark),
    knowsTools: knowsOutcomes && (rendersTools || rendersOfSystem),
    toolsIn: rendersTools || !rendersOfSystem ? 'variable' : 'system',
    knowsCalls: form !== undefined,
    argumentsAs: form?.argumentsAs ?? 'object',
    callIds: form?.callIds ?? 'any',
    allowsParallelCalls: form !== undefined && loop({ ...form, calls: 2 }),
  }
}

interface CallForm {
  readonly argumentsAs: 'object' | 'text'
  readonly callIds: 'any' | 'nine'
  readonly calls: number
}

/** A conversation with a call that is written as assistant text. */
const textLoop = [
  user,
  { role: 'assistant', content: argumentMark },
  { role: 'tool', content: outcomeMark, tool_call_id: 'abcdefgh1', name: toolMark },
]

function toolLoop({ argumentsAs, callIds, calls }: CallForm): readonly object[] {
  const argumentsOf = (at: number): object => ({ probe: argumentMark + at })
  const ids = Array.from({ length: calls }, (_, at) =>
    callIds === 'nine' ? `abcdefgh${at}` : `call_probe_of_any_form_${at}`,
  )
  return [
    user,
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
      content: outcomeMark,
      tool_call_id: id,
      name: toolMark,
    })),
  ]
}
