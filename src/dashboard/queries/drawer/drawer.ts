/** The drawer of a task: its story, error, output, dependencies, and commands about it. */

import type { ViewEvent } from '../../../views/panel.ts'
import { stagesOf } from '../../../views/panels/counts.ts'
import { type FailureExample, toFailureExample } from '../../../views/panels/failures.ts'
import { dependenciesOf } from '../../../views/panels/graph.ts'
import { quoteArgument } from '../../../views/readable.ts'
import { toShortPath } from '../../../record/find-record.ts'
import { explainTask, type TaskExplanation } from '../../../views/tasks.ts'
import { taskFailureLines } from '../../../views/texts/failure-lines.ts'
import { createTaskStory, taskStoryLines } from '../../../views/texts/task-story.ts'
import { uidOf } from '../../../views/task-index.ts'
import type { TaskDrawerView, TaskLink } from '../../protocol.ts'
import type { RunMoment } from '../run-moment.ts'
import { nameOfTask, shownLine, shownText, shownUid } from '../shown-texts.ts'
import { readOutput, type TaskSource } from './task-source.ts'
import { createStateReader } from '../tasks/task-fields.ts'

const maxLinks = 50

/** Returns `null` if there is no such task. */
export function showTask(
  moment: RunMoment,
  number: number,
  source: TaskSource,
): TaskDrawerView | null {
  const { events, files, limit, isReading } = source
  const { pass, now } = moment
  const uid = uidOf(pass.counts.index, number)
  const task = explainTask(pass, uid, now)
  if (task === null) return null
  const story = createTaskStory(moment, task, limit)
  const ownFailure = findFailure(task, story.failure?.example ?? null, events)
  const { failure } = story
  const state = createStateReader(moment)(task.task)
  const tails = { stdout: ownFailure?.stdoutTail ?? '', stderr: ownFailure?.stderrTail ?? '' }
  return {
    uid: shownText(uid),
    name: shownText(task.name),
    scope: shownText(task.scope),
    state,
    isInterrupted: state === 'INTERRUPTED',
    isReading,
    story: taskStoryLines(moment, task, story, ownFailure).map(shownLine),
    error: failure === null ? [] : taskFailureLines(failure, ownFailure).map(shownLine),
    ...readOutput(source, tails),
    attributes: listAttributes(events),
    dependencies: dependenciesOf(pass.states.graph, task.task)
      .slice(0, maxLinks)
      .map((one) => toLink(moment, one)),
    dependents: listDependents(moment, task.task),
    waitsFor: task.waitsFor.slice(0, maxLinks).map((one) => shownText(one)),
    range: rangeOf(moment, task),
    commands: listCommands(uid, files, !moment.isRunning && state !== 'DONE'),
  }
}

function findFailure(
  { state, uid }: TaskExplanation,
  example: FailureExample | null,
  events: readonly ViewEvent[],
): FailureExample | null {
  if (state !== 'FAILED') return null
  if (example?.task === uid) return example
  const event = events.findLast(({ event_type: type }) => type === 'TaskFailed')
  return event === undefined ? null : toFailureExample(event)
}

/** Attributes that the list omits, because the story of the task or its error shows them. */
const omittedAttributes: ReadonlySet<string> = new Set([
  'error_message',
  'error_stack',
  'error_hint',
  'tutti.error_causes',
  'stdout_tail',
  'stderr_tail',
  'result',
  'dependencies',
])
const maxAttributes = 60

function listAttributes(events: readonly ViewEvent[]): TaskDrawerView['attributes'] {
  const all = new Map<string, string>()
  for (const { attributes, backend } of events) {
    if (backend !== '') all.set('backend', backend)
    for (const [key, value] of Object.entries(attributes)) {
      if (omittedAttributes.has(key) || value === null || value === undefined) continue
      all.set(shownText(key), typeof value === 'string' ? value : JSON.stringify(value))
    }
  }
  return Array.from(all, ([key, value]) => [key, shownText(value, 500)] as const).slice(
    0,
    maxAttributes,
  )
}

const toLink = (moment: RunMoment, task: number): TaskLink => ({
  uid: shownUid(moment, task),
  name: nameOfTask(moment, task),
  state: createStateReader(moment)(task),
})

function listDependents(moment: RunMoment, task: number): TaskLink[] {
  const { graph } = moment.pass.states
  const found: number[] = []
  if (graph.size === 0) return []
  for (let other = 0; other < graph.tasks && found.length < maxLinks; other++) {
    if (stagesOf(moment.pass.counts, other) === 0) continue
    if (dependenciesOf(graph, other).includes(task)) found.push(other)
  }
  return found.map((one) => toLink(moment, one))
}

function rangeOf({ now, isRunning }: RunMoment, task: TaskExplanation): TaskDrawerView['range'] {
  const { created, started, ended } = task.story
  const last = task.attempts.at(-1)
  const to = ended ?? (isRunning || last === undefined ? now : last.end)
  return { from: started ?? created, to: Math.max(to, started ?? created) }
}

function listCommands(
  uid: string,
  files: readonly string[],
  canRunAgain: boolean,
): TaskDrawerView['commands'] {
  const file = files.at(-1)
  if (file === undefined) return []
  const record = quoteArgument(toShortPath(file))
  const commands = [
    { title: 'explain', text: `npx tutti explain ${quoteArgument(uid)} ${record}` },
    { title: 'logs', text: `npx tutti logs ${quoteArgument(uid)} ${record}` },
    ...(canRunAgain ? [{ title: 'resume', text: `npx tutti resume ${record}` }] : []),
  ]
  return commands.map(({ title, text }) => ({ title, text: shownLine(text) }))
}
