import {
  Injectable,
  NotFoundException,
  UnauthorizedException,
  type CanActivate,
  type ExecutionContext,
} from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { Repository } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';

/** What this needs of a request; `tenant` is there once the guard has let it in. */
export interface TenantRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly params: { readonly id: string };
  tenant?: string;
}

/**
 * Lets each tenant at its own invoices only. `X-Tenant` stands in for a credential: a real service reads the tenant from
 * a token that it has checked.
 */
@Injectable()
export class InvoiceOwnerGuard implements CanActivate {
  constructor(@InjectRepository(Invoice) private readonly invoices: Repository<Invoice>) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const request = context.switchToHttp().getRequest<TenantRequest>();
    const tenant = tenantOf(request);
    if (!tenant) throw new UnauthorizedException('Say who you are, with a header X-Tenant.');
    const { id } = request.params;
    if (!(await this.invoices.existsBy({ id, tenant }))) {
      throw new NotFoundException(`${tenant} has no invoice ${id}.`);
    }
    request.tenant = tenant;
    return true;
  }
}

/** Header values are ASCII, and names of tenants are not: they come percent-encoded. */
function tenantOf({ headers }: TenantRequest): string | undefined {
  try {
    return decodeURIComponent(String(headers['x-tenant'] ?? ''));
  } catch {
    return undefined; // a % that encodes nothing: no name of anybody
  }
}
