/** `tutti resume --dry-run`: lists the tasks that a resume would run, and runs nothing. */

import type { RunCommand } from '../../checkpoint/run-file.ts'
import { previewResume, type ResumePreview } from '../../core/resume/preview.ts'
import { ConcurrentBackend, type ResumeOptions } from '../../index.ts'
import { countText, numberText } from '../../views/readable.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { type Column, nameColumn, tableLines } from '../reading/text.ts'
import { createTasks } from './run-tasks.ts'

export async function showPreview(
  command: RunCommand,
  args: readonly string[],
  { record, how }: { readonly record: string; readonly how: Required<ResumeOptions> },
  output: Output,
): Promise<number> {
  await using local = await ConcurrentBackend.create({ name: 'local' })
  const isScript = command.kind === 'script'
  const tasks = isScript ? null : await createTasks(command, args, local)
  const preview = await previewResume(record, how, tasks)
  const { runs, total } = preview
  output.result({ record, total, tasks: runs, complete: !isScript }, [
    ...(runs.length === 0 ? [] : tableLines(columnsFor(runs), runs, output.width)),
    [summaryText(preview, isScript), ...(isScript ? scriptNotes(preview, how) : [])].join('; '),
  ])
  return exitCodes.ok
}

type PreviewedTask = ResumePreview['runs'][number]

const columnsFor = (tasks: readonly PreviewedTask[]): readonly Column<PreviewedTask>[] => [
  { head: 'task', cell: ({ uid }) => uid, minWidth: 12 },
  { head: 'reason', cell: ({ reason }) => reason },
  nameColumn(tasks, { dropOrder: 1, minWidth: 12 }),
]

function summaryText({ runs, total }: ResumePreview, isScript: boolean): string {
  const all = countText(total, isScript ? 'recorded task' : 'task')
  const reasons = Map.groupBy(runs, ({ reason }) => reason)
  const countOf = ([reason, { length }]: readonly [string, readonly unknown[]]): string =>
    `${numberText(length)} ${reason}`
  const counts = Array.from(reasons, countOf).join(', ')
  return `${numberText(runs.length)} of ${all} would run${counts === '' ? '' : `: ${counts}`}`
}

function scriptNotes({ unnamed }: ResumePreview, { changed }: Required<ResumeOptions>): string[] {
  const others = changed === 'rerun' ? '' : ' without a uid of its own'
  return [
    'the script may create others',
    ...(unnamed > 0 || changed === 'rerun'
      ? [`any finished task${others} runs again if it has changed`]
      : []),
  ]
}
