/** Declares the commands that read records. Each imports its code when it runs. */

import { InvalidArgumentError, Option } from 'commander'
import { taskStates } from '../../tasks/lifecycle.ts'
import type { DashboardCommandOptions } from '../dashboard/dashboard.ts'
import type { ExportOptions } from '../export/export.ts'
import type { FailuresCommandOptions } from '../reading/failures.ts'
import type { LogsOptions } from '../reading/logs/logs.ts'
import type { PruneOptions } from '../reading/prune.ts'
import type { ReportCommandOptions } from '../reading/report.ts'
import type { TailOptions } from '../reading/tail.ts'
import type { TasksCommandOptions } from '../reading/tasks.ts'
import type { TopOptions } from '../reading/top.ts'
import { type Cli, expectNotEmpty, toCount, toHosts, toList, toPort } from './cli.ts'
import { toOneOf, withRecord, withRecordFile } from './cli.ts'

const scopeOption = [
  '--scope <id>',
  'Only tasks of this scope of a workflow, and of scopes inside of it',
  expectNotEmpty,
] as const

export function addReaders(cli: Cli): void {
  addTables(cli)
  addTaskReaders(cli)
  addFollowers(cli)
  addDashboard(cli)
  addJournal(cli)
  addFileWriters(cli)
}

function addTables({ program, output, finish }: Cli): void {
  withRecord(program.command('status').description('Show the state of a run')).action(
    async (record: string) => {
      const { showStatus } = await import('../reading/status.ts')
      finish(await showStatus(record, output()))
    },
  )
  withRecord(program.command('tasks').description('List the tasks of a run'))
    .option('--state <state>', `Only tasks in this state: ${taskStates.join(', ')}`)
    .option('--name <name>', 'Only tasks of this name: a program, function or model')
    .option('--node <node>', 'Only tasks that ran on this node')
    .option(...scopeOption)
    .option(
      '--sort <time>',
      'Longest first, by how long they ran or waited: ran, waited',
      toOneOf('ran', 'waited'),
    )
    .option('--limit <n>', 'Number of tasks to show', toCount, 50)
    .action(async (record: string, options: TasksCommandOptions) => {
      const { listTasks } = await import('../reading/tasks.ts')
      finish(await listTasks(record, options, output()))
    })
  withRecord(
    program.command('failures').description('Show what failed, by cause, with an example of each'),
  )
    .option(...scopeOption)
    .option('--limit <n>', 'Number of causes to show', toCount, 20)
    .action(async (record: string, options: FailuresCommandOptions) => {
      const { listFailures } = await import('../reading/failures.ts')
      finish(await listFailures(record, options, output()))
    })
}

function addTaskReaders({ program, output, finish }: Cli): void {
  const explainCommand = program
    .command('explain')
    .description('Explain a task: what it waited for, where it ran, why it does not run')
    .argument('<task>', 'Uid of the task, or as much of it as is unique')
  withRecord(explainCommand).action(async (task: string, record: string) => {
    const { explain } = await import('../reading/explain/explain.ts')
    finish(await explain(task, record, output()))
  })
  const logsCommand = program
    .command('logs')
    .description("Show the output of a task's program, also while it runs")
    .argument('<task>', 'Uid of the task, or as much of it as is unique')
  withRecordFile(logsCommand)
    .option('-f, --follow', 'Follow the program until it ends')
    .action(async (task: string, record: string, options: LogsOptions) => {
      const { logs } = await import('../reading/logs/logs.ts')
      finish(await logs(task, record, options, output()))
    })
}

function addFollowers({ program, output, finish }: Cli): void {
  withRecord(program.command('tail').description('Show the latest events of a run'))
    .option('-n, --lines <n>', 'Number of events', toLines, 10)
    // Other commands have `--limit`, so it is a hidden alias here.
    .addOption(new Option('--limit <n>', 'Number of events').argParser(toLines).hideHelp())
    .option('-f, --follow', 'Follow the run until it ends')
    .option('--type <event>', 'Only events of this type, such as TaskFailed; repeatable', toList)
    .option('--task <uid>', 'Only events of this task')
    .option('--name <name>', 'Only events of tasks of this name: a program, function or model')
    .option('--node <node>', 'Only events of this node')
    .option('--backend <name>', 'Only events of this backend')
    .option(
      '--scope <id>',
      'Only events of this scope of a workflow, and of scopes inside of it',
      expectNotEmpty,
    )
    .action(async (record: string, options: TailOptions & { readonly limit?: number }) => {
      const { tail } = await import('../reading/tail.ts')
      const { limit: lines = options.lines, ...others } = options
      finish(await tail(record, { ...others, lines }, output()))
    })
  withRecord(program.command('top').description('Watch a run in progress'))
    .option('--seconds <n>', 'Seconds between two updates', toCount, 1)
    .action(async (record: string, options: TopOptions) => {
      const { top } = await import('../reading/top.ts')
      finish(await top(record, options, output()))
    })
}

function addDashboard({ program, output, finish }: Cli): void {
  withRecordFile(program.command('dashboard'))
    .description('Show a run in the browser, in progress or ended; for a folder, list its runs')
    .option('--port <n>', 'Port to listen on (default: 4646, or the next free one)', toPort)
    .option('--host <name>', 'Address to listen on (default: 127.0.0.1)')
    .option(
      '--allow-host <name>',
      'Another host name, such as that of a proxy; repeatable',
      toHosts,
    )
    .action(async (record: string, options: DashboardCommandOptions) => {
      const { showRecordDashboard } = await import('../dashboard/dashboard.ts')
      finish(await showRecordDashboard(record, options, output()))
    })
}

function addJournal({ program, output, finish }: Cli): void {
  const journal = program
    .command('journal')
    .description('Check, repair, compress and remove records')
  withRecord(
    journal.command('verify').description('Check the order, ends, counters and tail of a record'),
  ).action(async (record: string) => {
    const { verifyJournal } = await import('../journal.ts')
    finish(await verifyJournal(record, output()))
  })
  withRecordFile(
    journal.command('repair').description('Write the readable lines of a record into a new file'),
  ).action(async (record: string) => {
    const { repairJournal } = await import('../journal.ts')
    finish(await repairJournal(record, output()))
  })
  withRecordFile(
    journal.command('compress').description('Write a compressed copy, which every command reads'),
  ).action(async (record: string) => {
    const { compressJournal } = await import('../journal.ts')
    finish(await compressJournal(record, output()))
  })
  journal
    .command('prune')
    .description('Remove whole runs with all their files, except those in use')
    .option('--keep <n>', 'Keep this many of the newest runs', toLines)
    .option('--older <time>', 'Remove only runs last written longer ago: 12h, 30d or 4w', toAge)
    .option('--folder <path>', 'Folder of the records (default: . and ./telemetry)')
    .option('--dry-run', 'Show what would be removed, and remove nothing')
    .action(async (options: PruneOptions) => {
      const { pruneJournal } = await import('../reading/prune.ts')
      finish(await pruneJournal(options, output()))
    })
}

function addFileWriters({ program, output, finish }: Cli): void {
  withRecord(program.command('report'))
    .description('Write a page about a run, or a comparison of two runs')
    .argument('[other]', 'Second run, to compare with the first')
    .option('-o, --output <file>', 'File to write; - for stdout (default: named after the session)')
    .option('--open', 'Show it in the browser; needs a terminal')
    .option(...scopeOption)
    .action(async (record: string, other: string | undefined, options: ReportCommandOptions) => {
      const { writeReport } = await import('../reading/report.ts')
      finish(await writeReport(record, other, options, output()))
    })
  withRecord(program.command('export').description('Write a record in the format of another tool'))
    .requiredOption('--format <format>', 'Format: otlp, perfetto, csv or prometheus (required)')
    .option('-o, --output <file>', 'File to write (default: stdout)')
    .option('--protobuf', 'Write OTLP as protobuf instead of JSON')
    .action(async (record: string, options: ExportOptions) => {
      const { exportRecord } = await import('../export/export.ts')
      finish(await exportRecord(record, options, output()))
    })
}

const secondsPer = { h: 3600, d: 86_400, w: 604_800 }

function toAge(text: string): number {
  const [, count, unit] = /^(\d{1,6})([hdw])$/.exec(text) ?? []
  if (count === undefined) {
    throw new InvalidArgumentError('expected hours, days or weeks such as 12h, 30d or 4w')
  }
  return Number(count) * secondsPer[unit as keyof typeof secondsPer]
}

function toLines(text: string): number {
  if (/^\d{1,7}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('expected a whole number from 0 to 9999999')
}
