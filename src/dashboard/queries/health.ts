/** Health: what the run reports about itself, such as losses, delays and problems of the record. */

import { health } from '../../views/panels/health.ts'
import { run } from '../../views/panels/run.ts'
import { countText, numberText, secondsText } from '../../views/readable.ts'
import type { HealthPanelView } from '../protocol.ts'
import { rounded, shownText } from './shown-texts.ts'
import type { QuerySource, TelemetryFacts } from './query-source.ts'
import type { RunMoment } from './run-moment.ts'

type Fact = HealthPanelView['facts'][number]

const count = (title: string, value: number): Fact => ({
  title,
  value: numberText(value),
  isBad: value > 0,
})

const telemetryFacts = (telemetry: TelemetryFacts | null): Fact[] =>
  telemetry === null
    ? []
    : [
        count('events dropped by telemetry', telemetry.droppedEvents),
        { title: 'writes in place', value: numberText(telemetry.inPlaceWrites), isBad: false },
      ]

const recordFacts = (problems: readonly string[]): Fact[] =>
  problems.length === 0
    ? [{ title: 'record', value: 'complete', isBad: false }]
    : problems.map((value) => ({ title: 'record', value: shownText(value), isBad: true }))

export function showHealth(
  { pass }: RunMoment,
  { missing, telemetry }: QuerySource,
): HealthPanelView {
  const view = health.show(pass.states.health)
  const { sessions, retries } = run.show(pass.states.run)
  const facts: Fact[] = [
    { title: 'events', value: numberText(pass.counts.events), isBad: false },
    { title: 'sessions', value: numberText(sessions), isBad: false },
    ...recordFacts([...(view.isDegraded ? ['it cannot be written'] : []), ...missing]),
    count('lines lost', Math.max(view.lostLines, telemetry?.lostLines ?? 0)),
    ...telemetryFacts(telemetry),
    {
      title: 'longest delay of an event',
      value: secondsText(view.maxDelay),
      isBad: view.maxDelay > maxDelaySeconds,
    },
    {
      title: 'changes of the clock',
      value: view.clockStep === 0 ? 'none' : secondsText(view.clockStep),
      isBad: view.clockStep > 0,
    },
    {
      title: 'times without any event',
      value:
        view.gapCount === 0
          ? 'none'
          : `${countText(view.gapCount, 'time')}, ${secondsText(view.gapSeconds)} together`,
      isBad: view.gapCount > 0,
    },
    { title: 'further attempts', value: numberText(retries), isBad: false },
    count('workers lost', view.workersLost),
    count('model servers lost', view.enginesLost),
    count('nodes lost', view.nodesLost),
    { title: 'nodes drained', value: numberText(view.nodesDrained), isBad: false },
    { title: 'tasks that moved', value: numberText(view.tasksMoved), isBad: false },
    count('late results that were dropped', view.staleResults),
    count('times that a backend was throttled', view.throttled),
    count('errors of subscribers', view.subscriberErrors),
  ]
  const loopLag = {
    times: view.loopDelays.map(({ time }) => rounded(time)),
    ms: view.loopDelays.map(({ ms }) => ms),
  }
  return { facts, warnings: showWarnings(view.warnings), loopLag }
}

/** The latest warnings come first. */
export const showWarnings = (warnings: HealthPanelView['warnings']): HealthPanelView['warnings'] =>
  warnings
    .map(({ time, type, subject, text }) => ({
      time,
      type: shownText(type),
      subject: shownText(subject),
      text: shownText(text, 300),
    }))
    .toReversed()

/** Even over a slow connection, events of other machines are normally delayed by less than this. */
const maxDelaySeconds = 5
