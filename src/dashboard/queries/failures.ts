/** Failures grouped by cause, as `tutti failures` groups them. */

import { toArray } from '../../views/columns.ts'
import { type FailureGroup, failures } from '../../views/panels/failures.ts'
import { failureGroupLines } from '../../views/texts/failure-lines.ts'
import type { FailuresPanelView, Filter } from '../protocol.ts'
import { findNames } from './selection.ts'
import { describeNotShown, shownLine, shownText, shownUid } from './shown-texts.ts'
import type { RunMoment } from './run-moment.ts'

const maxGroups = 100
const maxTasks = 200

interface GroupTasks {
  readonly tasks: number[]
  count: number
  firstTime: number
  lastTime: number
}

/** Causes come before consequences, and larger groups first. */
export function showFailures(moment: RunMoment, filter: Filter): FailuresPanelView {
  const { groups, ungrouped } = failures.show(moment.pass.states.failures, { limit: Infinity })
  if (groups.length === 0) return { groups: [], notShown: '' }
  const found = listTasks(moment, filter)
  const rankOf = ({ isConsequence }: FailureGroup): number => (isConsequence ? 1 : 0)
  const selected = groups
    .flatMap((group) => {
      const groupTasks = found.get(group.number)
      return groupTasks === undefined ? [] : [{ group, own: groupTasks }]
    })
    .toSorted((a, b) => rankOf(a.group) - rankOf(b.group) || b.own.count - a.own.count)
  return {
    groups: selected.slice(0, maxGroups).map(({ group, own }) => toGroup(moment, group, own)),
    notShown: describeNotShown([selected.length - maxGroups, 'cause'], [ungrouped, 'failed task']),
  }
}

function toGroup(moment: RunMoment, group: FailureGroup, own: GroupTasks) {
  const { number, errorType, message, name, isConsequence, firstTask } = group
  const { tasks, count, firstTime, lastTime } = own
  return {
    number,
    errorType: shownText(errorType),
    message: shownText(message, maxMessage),
    name: shownText(name),
    count,
    firstTask: shownText(firstTask),
    firstTime,
    lastTime,
    isConsequence,
    // Without the title, whose count is that of the whole run, and without its indentation.
    example: failureGroupLines(group)
      .slice(1)
      .map((text) => shownLine(text.replace(/^ {2}/, ''))),
    tasks: tasks.map((task) => shownUid(moment, task)),
  }
}

const maxMessage = 500

/** The failed tasks of each group that the filter selects, by the number of the group. */
function listTasks(moment: RunMoment, filter: Filter): Map<number, GroupTasks> {
  const { columns, pass } = moment
  const { groupOfTask, timeOfTask, tasks: size } = pass.states.failures
  const { from = -Infinity, to = Infinity } = filter
  const names = findNames(moment, filter.name)
  const groupOf = toArray(groupOfTask, size)
  const timeOf = toArray(timeOfTask, size)
  const found = new Map<number, GroupTasks>()
  for (let task = 0; task < size; task++) {
    const group = groupOf[task] ?? 0
    const time = timeOf[task] ?? 0
    if (group === 0 || time < from || time > to) continue
    if (names !== null && names[columns.name[task] ?? 0] !== 1) continue
    let own = found.get(group)
    if (own === undefined) {
      own = { tasks: [], count: 0, firstTime: Infinity, lastTime: -Infinity }
      found.set(group, own)
    }
    if (own.tasks.length < maxTasks) own.tasks.push(task)
    own.count++
    own.firstTime = Math.min(own.firstTime, time)
    own.lastTime = Math.max(own.lastTime, time)
  }
  return found
}
