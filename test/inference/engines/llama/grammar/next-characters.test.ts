import { getLlama, LlamaGrammar, LlamaGrammarEvaluationState, type Token } from 'node-llama-cpp'
import { afterAll, beforeAll, expect, it } from 'vitest'
import * as filter from '../../../../../src/inference/engines/llama/evaluation/grammar-filter.ts'
import { toGrammar } from '../../../../../src/inference/engines/llama/grammar/output-grammar.ts'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { spellingToBytes } from '../../../../../src/inference/engines/llama/token-text.ts'
import { byRun } from '../../../../long-run.ts'
import { storyModel } from '../open-engine.ts'
import { startGrammar } from '../start-grammar.ts'

const person = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 2, maxLength: 12 },
    kind: { enum: ['apple', 'apricot', 'Ünicorn', null, 1.5] },
    age: { type: 'integer', minimum: 18, maximum: 120 },
    born: { type: 'string', format: 'date' },
    tags: { type: 'array', items: { type: 'string', pattern: '^[a-zà-ü]{2,4}$' }, maxItems: 3 },
  },
  required: ['name', 'kind'],
  additionalProperties: { type: 'number' },
}
const arithmetic = String.raw`root ::= (expr "=" ws term "\n")+ # a comment
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*`
const cases: readonly (readonly [string, Exclude<OutputFormat, { kind: 'text' }>])[] = [
  ['any JSON', { kind: 'json_object' }],
  ['a schema', { kind: 'json_schema', schema: person }],
  ['a list', { kind: 'json_schema', schema: { type: 'array', items: person, minItems: 3 } }],
  ['a regular expression', { kind: 'regex', pattern: String.raw`(?:\w+|[^\x00-\x7F]{2}) - \d+` }],
  ['choices', { kind: 'choice', choices: ['yes', 'yes, but', 'né', '日本', '🎉 done'] }],
  ['an own grammar', { kind: 'grammar', grammar: arithmetic }],
  ['any text', { kind: 'grammar', grammar: 'root ::= .*' }],
]

interface Hidden {
  readonly _bindings: {
    readonly AddonSampler: {
      canBeNextTokenForGrammarEvaluationState(state: unknown, token: number): boolean
      acceptGrammarEvaluationStateToken(state: unknown, token: number): void
    }
  }
}

/** The state of a native grammar within one answer. */
interface NativeState {
  isNext(token: number): boolean
  accept(token: number): void
}

/** The vocabulary of the model, and its native grammars. */
async function openVocabulary() {
  const llama = await getLlama({ gpu: false, build: 'never' })
  const model = await llama.loadModel({ modelPath: storyModel(), vocabOnly: true })
  const { ggml } = model.fileInfo.metadata.tokenizer
  const bytes = ggml.tokens.map((spelling) => spellingToBytes(ggml.model, spelling) ?? [])
  const bytesOf = (token: number): readonly number[] => bytes[token] ?? []
  const isEnd = (token: number): boolean => token === model.tokens.eos
  const { _bindings: bindings } = llama as unknown as Hidden
  const { AddonSampler } = bindings
  return {
    bytesOf,
    groups: new filter.TokenGroups({
      size: bytes.length,
      bytesOf,
      nameOf: () => '',
      isEnd,
      isTextless: (token) => model.isSpecialToken(token as Token),
    }),
    /** Not those that stand for no text, nor that of the byte 0: llama.cpp allows them nowhere. */
    texts: new Set(
      [...bytes.keys()].filter(
        (token) => !model.isSpecialToken(token as Token) && bytes[token]?.[0] !== 0,
      ),
    ),
    openState: (text: string): NativeState => {
      const grammar = new LlamaGrammar(llama, { grammar: text })
      const state = new LlamaGrammarEvaluationState({ model, grammar })
      const { _state: native } = state as unknown as { readonly _state: unknown }
      return {
        isNext: (token) => AddonSampler.canBeNextTokenForGrammarEvaluationState(native, token),
        accept: (token) => AddonSampler.acceptGrammarEvaluationStateToken(native, token),
      }
    },
    close: () => model.dispose(),
  }
}

let opened: Awaited<ReturnType<typeof openVocabulary>>
beforeAll(async () => {
  opened = await openVocabulary()
})
afterAll(() => opened.close())

/** llama.cpp allows other bytes as well. */
function isUtf8(bytes: readonly number[]): boolean {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    decoder.decode(Uint8Array.from(bytes), { stream: true })
    return true
  } catch {
    return false
  }
}

/** Asking llama.cpp for every token takes a quarter of a second; other ones at each length. */
const sampledOf = (tokens: ReadonlySet<number>, length: number): readonly number[] =>
  [...tokens].filter((token) => token % byRun(61, 1) === length % byRun(61, 1))

it.each(cases)('next characters follow a grammar as llama.cpp does: %s', (_, format) => {
  const { bytesOf, groups, texts, openState } = opened
  const text = toGrammar(format)
  for (let answers = 0; answers < byRun(1, 6); answers++) {
    const [answer, native] = [groups.begin(startGrammar(text)), openState(text)]
    for (let length = 0; length < byRun(20, 60); length++) {
      const candidates = new Set(groups.findCandidates(answer)?.flat())
      const few = candidates.size < 300 ? [...candidates].filter((token) => texts.has(token)) : []
      const tried = [...new Set([...sampledOf(texts, length), ...few])]
      const allowed = tried.filter((token) => answer.isAllowed(token))
      const isText = (token: number): boolean => isUtf8([...answer.pending, ...bytesOf(token)])
      const nativelyAllowed = tried.filter((token) => isText(token) && native.isNext(token))
      expect(allowed.map(bytesOf)).toEqual(nativelyAllowed.map(bytesOf))
      expect(allowed.filter((token) => !candidates.has(token)).map(bytesOf)).toEqual([])
      const chosen = allowed[(7919 * (length + 31 * answers + 1)) % allowed.length]
      if (chosen === undefined) break
      answer.accept(chosen)
      native.accept(chosen)
    }
  }
})
