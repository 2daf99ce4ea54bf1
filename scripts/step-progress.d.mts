export interface StepOutput {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

export declare function during<Value>(
  work: Promise<Value>,
  title: string,
  howFar?: () => string,
  output?: StepOutput,
): Promise<Value>
