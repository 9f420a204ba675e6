import { EtcdCommands } from './etcd-commands.js';

const SIGNAL = new AbortController().signal;
const LEASES = ['1', '2', '3', '4', '5', '6', '7'];
const ENDED = '4';

/** A gateway that answers no more than so many of the commands of one request. */
function gatewayThatAnswers(most: number): { readonly requests: number[]; readonly commands: EtcdCommands } {
  const requests: number[] = [];
  const answerTo = ({ ID }: { readonly ID: string }): object => (ID === ENDED ? { ID } : { ID, TTL: '60' });
  const askEach = (_path: string, asked: readonly object[]): Promise<object[]> => {
    requests.push(asked.length);
    return Promise.resolve((asked as { readonly ID: string }[]).slice(0, most).map(answerTo));
  };
  const ask = (): Promise<object> => Promise.reject(new Error('no other command'));
  return { requests, commands: new EtcdCommands({ ask, askEach }) };
}

describe('renewals of leases on etcd', () => {
  it('are asked for again when the gateway left some without an answer, which have not ended', async () => {
    const { requests, commands } = gatewayThatAnswers(3);
    expect(await commands.keepAlive(LEASES, SIGNAL)).toEqual([60, 60, 60, 0, 60, 60, 60]);
    expect(requests).toEqual([7, 4, 1]);
  });

  it('are one request when each is answered', async () => {
    const { requests, commands } = gatewayThatAnswers(100);
    await commands.keepAlive(LEASES, SIGNAL);
    expect(requests).toEqual([7]);
  });

  it('are unknown when none is answered', async () => {
    const { requests, commands } = gatewayThatAnswers(0);
    await expect(commands.keepAlive(LEASES, SIGNAL)).rejects.toThrow('answered for none');
    expect(requests).toEqual([7]);
  });
});
