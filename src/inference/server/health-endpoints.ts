/** Whether the server lives and can answer, for people and for those who start it. */

import { maskSecrets } from '../../foundation/secrets.ts'
import { type Endpoint, type EndpointTools, machineName } from './endpoint.ts'

export function createHealthEndpoints(tools: EndpointTools): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/health',
      isOpen: true,
      answer(exchange) {
        const reason = reasonOf(tools)
        exchange.sendJson(reason === null ? 200 : 503, {
          status: reason === null ? 'healthy' : 'unhealthy',
          ...(reason === null ? {} : { reason }),
          hostname: machineName,
          initialized: tools.desk.status().unready === null,
          endpoint: tools.endpoint,
          mode: 'service',
          batch_config: {
            max_batch_size: tools.batchConfig.maxBatchSize,
            max_batch_wait_ms: tools.batchConfig.maxBatchWaitMs,
            pending_requests: tools.desk.status().queued,
          },
        })
      },
    },
    {
      method: 'GET',
      path: '/health/live',
      isOpen: true,
      answer: (exchange) => exchange.sendJson(200, { status: 'alive' }),
    },
    {
      method: 'GET',
      path: '/health/ready',
      isOpen: true,
      answer(exchange) {
        const reason = reasonOf(tools)
        if (reason === null) exchange.sendJson(200, { status: 'ready' })
        else exchange.sendJson(503, { status: 'unready', reason })
      },
    },
  ]
}

/** Anybody may ask: an engine's own words, which may hold paths and addresses, are cut off. */
function reasonOf({ desk, unready }: EndpointTools): string | null {
  const reason = unready() ?? desk.status().unready
  return reason === null ? null : maskSecrets(reason.split(':', 1)[0] ?? '')
}
