// @ts-check
// The policy of a campaign as its form has it, and as the API takes it. No page here.

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/** The policy that the values of the form mean: minutes become seconds, shares stay percentages. */
export function read_policy(v) {
  const share = (name) => ({ percent: Number(v[name]) });
  const [hour, minute] = (v.begins || "0:0").split(":").map(Number);
  const days = v.days.split(/[\s,]+/).filter(Boolean).map((day) => DAYS.findIndex((d) => day.toLowerCase().startsWith(d.toLowerCase())));
  const first = Number(v.first);
  return {
    canary: { size: Number(v.canaries), soak_s: Number(v.canary_soak) * 60 },
    waves: [...(first > 0 && first < 100 ? [{ upto: { percent: first }, soak_s: Number(v.wave_soak) * 60 }] : []), { upto: { percent: 100 }, soak_s: 0 }],
    limits: Object.fromEntries(["rack", "scalable_unit", "tenant", "total"].map((domain) => [domain, share(domain)])),
    failure_budget: share("budget"), breaker: { same_reason: Number(v.same_reason) }, tenants: { notice_s: Number(v.notice) * 3600 }, allow_irreversible: v.irreversible,
    windows: days.length ? [{ days, start_min: hour * 60 + minute, minutes: Number(v.minutes), zone: v.zone }] : [],
  };
}
