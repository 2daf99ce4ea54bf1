/**
 * The cost of user-defined patterns: CPU time of 64 KiB through 20 rules, compared with the same
 * patterns on JavaScript's backtracking engine in the same run, and the longest turn of the event
 * loop while 4 MB are checked: text without matches, text full of them, and texts that make
 * patterns backtrack.
 */

import { systemClock } from '../src/foundation/clock.ts'
import { createGuard } from '../src/inference/guardrails/guard.ts'
import type { GuardRule } from '../src/inference/guardrails/rules.ts'
import { runSteps, StepScheduler } from '../src/runtime/turn-budget.ts'
import { median, table } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const megabytes = Number(process.env['MB'] ?? 4)

const patterns = [
  String.raw`\b[A-Z]{2}\d{6}\b`,
  String.raw`[\w.+-]+@[\w-]+\.[\w.-]{2,8}`,
  'ignore.{0,20}previous.{0,20}rules',
  String.raw`project\s+(falcon|eagle)`,
  String.raw`(?:\d{4}[ -]?){3}\d{4}`,
  String.raw`secret-\d+`,
  'internal use only',
  String.raw`\+?\d{1,3}[ -]?\(?\d{2,4}\)?[ -]?\d{3,4}[ -]?\d{4}`,
  '(?:[a-f0-9]{2}:){5,}[a-f0-9]{2}',
  String.raw`\b(?:cat|wolf|cow){2,3}s?\b`,
  'acme[- ]?(corp|inc|ltd)',
  String.raw`\d{3}-\d{2}-\d{4}`,
  String.raw`https?:\/\/[\w.-]+\.internal\b`,
  String.raw`[A-Z]:\\[\w\\]+`,
  String.raw`password\s*[:=]\s*\S+`,
  'begin .* end',
  String.raw`ticket #\d{4,}`,
  '[α-ω]{3,}',
  'key=[a-z0-9]{16,32}',
  'x-[a-z]+-token',
]

const prose =
  'The quick brown fox jumps over the lazy dog; order 12-3456 was sent to Berlin on 2026-11-02 ' +
  'by Ms. Müller. '
const dense = 'secret-1 acme corp AB123456 a@b.example 1234 5678 1234 5678 password: x; '
const textOf = (unit: string, chars: number): string =>
  unit.repeat(Math.ceil(chars / unit.length)).slice(0, chars)

const ownRules = (sources: readonly string[]): GuardRule[] =>
  sources.map((pattern, at) => {
    return {
      kind: 'pattern',
      id: `own-${at}`,
      pattern,
      unless: [],
      stage: 'input',
      action: 'redact',
    }
  })
const builtIn = (id: 'injection' | 'secrets' | 'personal_data'): GuardRule => {
  return { kind: 'built-in', id, stage: 'input', action: 'redact' }
}
const guardWith = (rules: readonly GuardRule[]) =>
  createGuard({
    isOn: true,
    sensitivity: 0.5,
    rules,
    maxPromptChars: null,
    action: 'redact',
    onBlock: 'error',
  })

function cpuMs(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

function cost(): void {
  const guard = guardWith(ownRules(patterns))
  const expressions = patterns.map((pattern) => new RegExp(pattern, 'giu'))
  const rows = [
    ['without matches', prose],
    ['full of matches', dense],
  ].map(([name = '', unit = '']) => {
    const text = textOf(unit, 65_536)
    const found: Record<'ours' | 'backtracking', number[]> = { ours: [], backtracking: [] }
    for (let run = 0; run <= runs; run++) {
      const ours = cpuMs(() => void runSteps(guard.checkInput(text)))
      const backtracking = cpuMs(() => {
        for (const expression of expressions) for (const _ of text.matchAll(expression));
      })
      if (run === 0) continue
      found.ours.push(ours)
      found.backtracking.push(backtracking)
    }
    const [ours, other] = [median(found.ours), median(found.backtracking)]
    return [name, ours.toFixed(1), other.toFixed(1), `${(ours / other).toFixed(1)} x`]
  })
  table(['64 KiB, 20 patterns', 'tutti (ms CPU)', 'RegExp.matchAll (ms CPU)', 'ratio'], rows)
}

/** The CPU time of the longest turn of the event loop, and of all turns together. */
async function maxTurn(rules: readonly GuardRule[], text: string) {
  const guard = guardWith(rules)
  let [longest, total] = [0, 0]
  const measured = <T>(work: () => T): T => {
    const before = process.cpuUsage()
    const result = work()
    const { user, system } = process.cpuUsage(before)
    const took = (user + system) / 1000
    longest = Math.max(longest, took)
    total += took
    return result
  }
  const clock = {
    now: () => systemClock.now(),
    monotonicMs: () => systemClock.monotonicMs(),
    after: systemClock.after.bind(systemClock),
    nextTurn: (callback: () => void) => systemClock.nextTurn(() => measured(callback)),
  }
  const scheduler = new StepScheduler(clock, 8)
  await measured(() => scheduler.run(guard.checkInput(text), new AbortController().signal))
  return { longest, total }
}

/** Pseudo-random letters a and b, the same in every run. */
function randomLetters(chars: number): string {
  let seed = 1
  const codes = new Uint8Array(chars)
  for (let at = 0; at < chars; at++) {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7f_ff_ff_ff
    codes[at] = 97 + ((seed >> 16) & 1)
  }
  return Buffer.from(codes).toString('latin1')
}

async function turns(): Promise<void> {
  const chars = megabytes * 2 ** 20
  const corpus: readonly (readonly [name: string, rules: readonly GuardRule[], text: string])[] = [
    ['20 patterns, no match', ownRules(patterns), textOf(prose, chars)],
    ['20 patterns, full of matches', ownRules(patterns), textOf(dense, chars)],
    ['injection', [builtIn('injection')], textOf(prose, chars)],
    [
      'secrets, personal_data',
      [builtIn('secrets'), builtIn('personal_data')],
      textOf(prose, chars),
    ],
    ['personal_data, digits', [builtIn('personal_data')], textOf('4111 1111 2', chars)],
    ['я*я*я*я*x', ownRules(['я*я*я*я*x']), textOf('я', chars)],
    ['(a+)+$', ownRules(['(a+)+$']), textOf('a', chars)],
    ['(a|aa)+c', ownRules(['(a|aa)+c']), textOf('a', chars)],
    ['[ab]*a[ab]{12}c', ownRules(['[ab]*a[ab]{12}c']), randomLetters(chars)],
    [
      '20 × a[ab]{n}c',
      ownRules(Array.from({ length: 20 }, (_, at) => `a[ab]{${10 + at}}c`)),
      randomLetters(chars / 16),
    ],
    ['[ab]{1,240}c', ownRules(['[ab]{1,240}c']), randomLetters(chars / 64)],
    ['a(?:[^b]*b)?', ownRules(['a(?:[^b]*b)?']), textOf('a', chars / 64)],
  ]
  const rows: (readonly (string | number)[])[] = []
  for (const [name, rules, text] of corpus) {
    const found: { longest: number; total: number }[] = []
    for (let run = 0; run < runs; run++) found.push(await maxTurn(rules, text))
    const size = text.length >= 2 ** 20 ? `${text.length / 2 ** 20} MB` : `${text.length / 1024} KB`
    // The minimum over the runs, because a turn may contain a garbage collection or compilation.
    const longest = Math.min(...found.map((one) => one.longest))
    const total = Math.min(...found.map((one) => one.total))
    rows.push([`\`${name}\``, size, longest.toFixed(1), total.toFixed(0)])
  }
  table(['rules', 'text', 'longest turn (ms CPU)', 'all of it (ms CPU)'], rows)
}

cost()
await turns()
