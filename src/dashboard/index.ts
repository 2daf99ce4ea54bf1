/** `tutti/dashboard`: shows a run in the browser, while it runs and afterwards. */

import '../foundation/require-node.ts'

export { startDashboard } from './dashboard.ts'
export type { Dashboard, DashboardOptions } from './dashboard.ts'
export type { DashboardControl } from './dashboard-server.ts'
export type { DashboardTelemetry } from './sources/live-source.ts'
