/** The schema of an output that calls one of the tools, which a grammar enforces. */

import type { ToolDefinition } from '../../../generation/inference-engine.ts'
import { emptyParameters } from '../templates/template-messages.ts'

/** A tool without `parameters` takes an empty object. */
export function callSchema(tools: readonly ToolDefinition[]): object {
  const choices = tools.map(({ name, parameters }) => ({
    type: 'object',
    properties: {
      name: { const: name },
      arguments: parameters ?? { ...emptyParameters, additionalProperties: false },
    },
    required: ['name', 'arguments'],
    additionalProperties: false,
  }))
  const [only] = choices
  return choices.length === 1 && only !== undefined ? only : { oneOf: choices }
}
