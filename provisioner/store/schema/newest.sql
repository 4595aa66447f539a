CREATE TABLE agents (
    node VARCHAR NOT NULL,
    body TEXT NOT NULL,
    seen_at DOUBLE NOT NULL,
    CONSTRAINT pk_agents PRIMARY KEY (node),
    CONSTRAINT fk_agents_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0037');
CREATE TABLE alerts (
    node VARCHAR NOT NULL,
    id VARCHAR NOT NULL,
    target VARCHAR NOT NULL,
    active INTEGER NOT NULL,
    last_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_alerts PRIMARY KEY (node, id, target),
    CONSTRAINT fk_alerts_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE answers (
    caller VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    asked_at DOUBLE NOT NULL,
    status INTEGER NOT NULL,
    headers TEXT NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_answers PRIMARY KEY (caller, "key")
);
CREATE TABLE audit_exports (
    receiver VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    taken_at DOUBLE NOT NULL,
    failing_since DOUBLE NOT NULL,
    error TEXT NOT NULL,
    CONSTRAINT pk_audit_exports PRIMARY KEY (receiver)
);
CREATE TABLE baselines (
    profile VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    body TEXT NOT NULL,
    learned_at DOUBLE NOT NULL,
    CONSTRAINT pk_baselines PRIMARY KEY (profile, metric)
);
CREATE TABLE campaign_nodes (
    campaign VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_campaign_nodes PRIMARY KEY (campaign, node),
    CONSTRAINT fk_campaign_nodes_campaign_campaigns FOREIGN KEY(campaign) REFERENCES campaigns (id),
    CONSTRAINT fk_campaign_nodes_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE campaign_policies (
    name VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_campaign_policies PRIMARY KEY (name)
);
CREATE TABLE campaigns (
    id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    created_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_campaigns PRIMARY KEY (id)
);
CREATE TABLE cases (
    id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    opened_at DOUBLE NOT NULL,
    closed_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_cases PRIMARY KEY (id),
    CONSTRAINT fk_cases_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE certificates (
    id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    body TEXT NOT NULL,
    issued_at DOUBLE NOT NULL,
    revoked_at DOUBLE,
    revoked_reason TEXT NOT NULL,
    CONSTRAINT pk_certificates PRIMARY KEY (id),
    CONSTRAINT fk_certificates_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE clock_marks (
    name VARCHAR NOT NULL,
    at DOUBLE NOT NULL,
    CONSTRAINT pk_clock_marks PRIMARY KEY (name)
);
CREATE TABLE console_sessions (
    id VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    person VARCHAR NOT NULL,
    token VARCHAR NOT NULL,
    made_at DOUBLE NOT NULL,
    used_at DOUBLE NOT NULL,
    ended_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_console_sessions PRIMARY KEY (id),
    CONSTRAINT uq_console_sessions_digest UNIQUE (digest)
);
CREATE TABLE credential_standings (
    name VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    changed_at DOUBLE NOT NULL,
    due_at DOUBLE NOT NULL,
    urgency INTEGER NOT NULL,
    shown_to TEXT NOT NULL,
    failures INTEGER NOT NULL,
    retry_at DOUBLE NOT NULL,
    problem TEXT NOT NULL,
    CONSTRAINT pk_credential_standings PRIMARY KEY (name)
);
CREATE TABLE credentials (
    name VARCHAR NOT NULL,
    key_id VARCHAR NOT NULL,
    current BLOB,
    pending BLOB,
    CONSTRAINT pk_credentials PRIMARY KEY (name)
);
CREATE TABLE differences (
    subject VARCHAR NOT NULL,
    settled VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_differences PRIMARY KEY (subject)
);
CREATE TABLE directory_entries (
	id VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	name VARCHAR NOT NULL,
	standing VARCHAR NOT NULL,
	made_at DOUBLE NOT NULL,
	changed_at DOUBLE NOT NULL,
	generation INTEGER NOT NULL,
	body TEXT NOT NULL,
	CONSTRAINT pk_directory_entries PRIMARY KEY (id)
);
CREATE TABLE directory_names (
	name VARCHAR NOT NULL,
	entry VARCHAR NOT NULL,
	CONSTRAINT pk_directory_names PRIMARY KEY (name, entry)
);
CREATE TABLE evidence (
    digest VARCHAR NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT pk_evidence PRIMARY KEY (digest)
);
CREATE TABLE executors (
    number INTEGER NOT NULL,
    id VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    started_at DOUBLE NOT NULL,
    died_at DOUBLE NOT NULL,
    digests TEXT DEFAULT '{}' NOT NULL,
    change_until DOUBLE DEFAULT '0' NOT NULL,
    standing TEXT DEFAULT '' NOT NULL,
    CONSTRAINT pk_executors PRIMARY KEY (number),
    CONSTRAINT uq_executors_id UNIQUE (id)
);
CREATE TABLE fabric_outcomes (
    node VARCHAR NOT NULL,
    session VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_fabric_outcomes PRIMARY KEY (node),
    CONSTRAINT fk_fabric_outcomes_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE fabric_sessions (
    id VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    ended_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_fabric_sessions PRIMARY KEY (id)
);
CREATE TABLE grants (
    "key" VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_grants PRIMARY KEY ("key")
);
CREATE TABLE inventories (
    id INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    body TEXT NOT NULL,
    seen_at DOUBLE NOT NULL,
    CONSTRAINT pk_inventories PRIMARY KEY (id),
    CONSTRAINT fk_inventories_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE journal (
    seq INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    kind VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    detail TEXT NOT NULL,
    digest VARCHAR NOT NULL,
    CONSTRAINT pk_journal PRIMARY KEY (seq)
);
CREATE TABLE journal_base (
    id INTEGER NOT NULL,
    through INTEGER NOT NULL,
    head VARCHAR NOT NULL,
    envelope TEXT NOT NULL,
    pruning INTEGER NOT NULL,
    CONSTRAINT pk_journal_base PRIMARY KEY (id)
);
CREATE TABLE journal_links (
    seq INTEGER NOT NULL,
    previous VARCHAR NOT NULL,
    CONSTRAINT pk_journal_links PRIMARY KEY (seq)
);
CREATE TABLE ledger (
    id INTEGER NOT NULL,
    operation VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    status VARCHAR NOT NULL,
    intended_at DOUBLE NOT NULL,
    "before" TEXT NOT NULL,
    task TEXT NOT NULL,
    outcome TEXT NOT NULL,
    settled_at DOUBLE NOT NULL,
    epoch INTEGER,
    settled_epoch INTEGER,
    CONSTRAINT pk_ledger PRIMARY KEY (id),
    CONSTRAINT fk_ledger_node FOREIGN KEY(node) REFERENCES nodes (id),
    CONSTRAINT fk_ledger_operation FOREIGN KEY(operation) REFERENCES operations (id),
    CONSTRAINT uq_ledger_operation_action_attempt UNIQUE (operation, action, attempt)
);
CREATE TABLE log_entries (
	place INTEGER NOT NULL,
	node VARCHAR NOT NULL,
	leaf TEXT NOT NULL,
	CONSTRAINT pk_log_entries PRIMARY KEY (place)
);
CREATE TABLE log_hashes (
	level INTEGER NOT NULL,
	place INTEGER NOT NULL,
	hash BLOB NOT NULL,
	CONSTRAINT pk_log_hashes PRIMARY KEY (level, place)
);
CREATE TABLE log_place (
	id INTEGER NOT NULL,
	through INTEGER NOT NULL,
	origin VARCHAR NOT NULL,
	salt VARCHAR NOT NULL,
	CONSTRAINT pk_log_place PRIMARY KEY (id)
);
CREATE TABLE marks (
    place VARCHAR NOT NULL,
    count INTEGER NOT NULL,
    timeline INTEGER DEFAULT '0' NOT NULL,
    seen_at DOUBLE DEFAULT '0' NOT NULL,
    CONSTRAINT pk_marks PRIMARY KEY (place)
);
CREATE TABLE matrices (
    digest VARCHAR NOT NULL,
    body TEXT NOT NULL,
    first_used_at DOUBLE NOT NULL,
    CONSTRAINT pk_matrices PRIMARY KEY (digest)
);
CREATE TABLE node_versions (
	node VARCHAR NOT NULL,
	inventory INTEGER NOT NULL,
	versions VARCHAR NOT NULL,
	serials TEXT NOT NULL,
	models TEXT NOT NULL,
	CONSTRAINT pk_node_versions PRIMARY KEY (node),
	CONSTRAINT fk_node_versions_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE nodes (
    id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    body TEXT NOT NULL,
    tenant VARCHAR DEFAULT '' NOT NULL,
    release VARCHAR DEFAULT '' NOT NULL,
    profile VARCHAR DEFAULT '' NOT NULL,
    rack VARCHAR DEFAULT '' NOT NULL,
    changed INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_nodes PRIMARY KEY (id)
);
CREATE TABLE notices (
    id VARCHAR NOT NULL,
    tenant VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    at DOUBLE NOT NULL,
    sent_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_notices PRIMARY KEY (id)
);
CREATE TABLE operations (
    id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    want VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    phase VARCHAR NOT NULL,
    opened_at DOUBLE NOT NULL,
    note TEXT NOT NULL,
    CONSTRAINT pk_operations PRIMARY KEY (id),
    CONSTRAINT fk_operations_node FOREIGN KEY(node) REFERENCES nodes (id),
    CONSTRAINT uq_operations_node_number UNIQUE (node, number)
);
CREATE TABLE overrides (
    node VARCHAR NOT NULL,
    id VARCHAR NOT NULL,
    target VARCHAR NOT NULL,
    until DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_overrides PRIMARY KEY (node, id, target),
    CONSTRAINT fk_overrides_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE proofs (
    id INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    certificate VARCHAR NOT NULL,
    tenant VARCHAR NOT NULL,
    body TEXT NOT NULL,
    confirmed_at DOUBLE NOT NULL,
    CONSTRAINT pk_proofs PRIMARY KEY (id),
    CONSTRAINT fk_proofs_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE received_events (
    node VARCHAR NOT NULL,
    bmc VARCHAR NOT NULL,
    identities TEXT NOT NULL,
    CONSTRAINT pk_received_events PRIMARY KEY (node, bmc),
    CONSTRAINT fk_received_events_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE release_pins (
    "key" VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_release_pins PRIMARY KEY ("key")
);
CREATE TABLE reports (
    id INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    body TEXT NOT NULL,
    ended_at DOUBLE NOT NULL,
    CONSTRAINT pk_reports PRIMARY KEY (id),
    CONSTRAINT fk_reports_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE requests (
    id INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    tenant VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_requests PRIMARY KEY (id)
);
CREATE TABLE runs (
    id VARCHAR NOT NULL,
    play VARCHAR NOT NULL,
    hosts TEXT NOT NULL,
    folder TEXT NOT NULL,
    started_at DOUBLE NOT NULL,
    limit_s DOUBLE NOT NULL,
    state VARCHAR NOT NULL,
    ended_at DOUBLE NOT NULL,
    place VARCHAR DEFAULT '' NOT NULL,
    CONSTRAINT pk_runs PRIMARY KEY (id)
);
CREATE TABLE samples (
    node VARCHAR NOT NULL,
    versions VARCHAR NOT NULL,
    profile VARCHAR NOT NULL,
    body TEXT NOT NULL,
    taken_at DOUBLE NOT NULL,
    CONSTRAINT pk_samples PRIMARY KEY (node, versions),
    CONSTRAINT fk_samples_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE saved_views (
	side VARCHAR NOT NULL,
	owner VARCHAR NOT NULL,
	name VARCHAR NOT NULL,
	shared INTEGER NOT NULL,
	body TEXT NOT NULL,
	CONSTRAINT pk_saved_views PRIMARY KEY (side, owner, name)
);
CREATE TABLE signing_keys (
    key_id VARCHAR NOT NULL,
    master_key_id VARCHAR NOT NULL,
    public BLOB NOT NULL,
    private BLOB,
    created_at DOUBLE NOT NULL,
    withdrawn_at DOUBLE,
    CONSTRAINT pk_signing_keys PRIMARY KEY (key_id)
);
CREATE TABLE site_state (
    id INTEGER NOT NULL,
    site VARCHAR NOT NULL,
    server VARCHAR NOT NULL,
    timeline INTEGER NOT NULL,
    look_only TEXT NOT NULL,
    surveyed_at DOUBLE NOT NULL,
    life INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_site_state PRIMARY KEY (id)
);
CREATE TABLE stored_images (
    name VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_stored_images PRIMARY KEY (name)
);
CREATE TABLE subscriptions (
    id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    bmc VARCHAR NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_subscriptions PRIMARY KEY (id),
    CONSTRAINT fk_subscriptions_node_nodes FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE tenants (
    name VARCHAR NOT NULL,
    vrf VARCHAR NOT NULL,
    number INTEGER,
    generation INTEGER NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_tenants PRIMARY KEY (name),
    CONSTRAINT uq_tenants_number UNIQUE (number),
    CONSTRAINT uq_tenants_vrf UNIQUE (vrf)
);
CREATE TABLE tokens (
    id VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    expires_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_tokens PRIMARY KEY (id),
    CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
CREATE TABLE usage_open (
	node VARCHAR NOT NULL,
	begins_at DOUBLE NOT NULL,
	owner VARCHAR NOT NULL,
	cause VARCHAR NOT NULL,
	what TEXT NOT NULL,
	standing TEXT NOT NULL,
	CONSTRAINT pk_usage_open PRIMARY KEY (node)
);
CREATE TABLE usage_place (
	id INTEGER NOT NULL,
	through INTEGER NOT NULL,
	CONSTRAINT pk_usage_place PRIMARY KEY (id)
);
CREATE TABLE usage_spans (
	node VARCHAR NOT NULL,
	begins_at DOUBLE NOT NULL,
	ends_at DOUBLE NOT NULL,
	owner VARCHAR NOT NULL,
	cause VARCHAR NOT NULL,
	what TEXT NOT NULL,
	CONSTRAINT pk_usage_spans PRIMARY KEY (node, begins_at)
);
CREATE TABLE version_sets (
	digest VARCHAR NOT NULL,
	body TEXT,
	CONSTRAINT pk_version_sets PRIMARY KEY (digest)
);
CREATE TABLE version_spans (
	node VARCHAR NOT NULL,
	begins_at DOUBLE NOT NULL,
	versions VARCHAR NOT NULL,
	CONSTRAINT pk_version_spans PRIMARY KEY (node, begins_at)
);
CREATE TABLE webhook_deliveries (
    webhook VARCHAR NOT NULL,
    seq INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    tries INTEGER NOT NULL,
    next_at DOUBLE NOT NULL,
    error TEXT NOT NULL,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (webhook, seq)
);
CREATE TABLE webhooks (
    name VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    delivered_at DOUBLE NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_webhooks PRIMARY KEY (name)
);
CREATE INDEX ix_answers_asked_at ON answers (asked_at);
CREATE INDEX ix_campaigns_state ON campaigns (state);
CREATE INDEX ix_console_sessions_person ON console_sessions (person);
CREATE INDEX ix_console_sessions_token ON console_sessions (token);
CREATE INDEX ix_credential_standings_age ON credential_standings (changed_at, name);
CREATE INDEX ix_credential_standings_due ON credential_standings (urgency, due_at, name);
CREATE INDEX ix_credential_standings_node ON credential_standings (node);
CREATE INDEX ix_fabric_sessions_ended_at ON fabric_sessions (ended_at);
CREATE INDEX ix_journal_node ON journal (node);
CREATE INDEX ix_nodes_changed ON nodes (changed);
CREATE INDEX ix_nodes_of_kind ON nodes (kind, id);
CREATE INDEX ix_nodes_of_tenant ON nodes (tenant, id);
CREATE INDEX ix_nodes_state ON nodes (state);
CREATE INDEX ix_nodes_summary ON nodes (kind, state, release, tenant);
CREATE INDEX ix_notices_sent_at ON notices (sent_at);
CREATE INDEX ix_notices_tenant ON notices (tenant);
CREATE INDEX ix_requests_state ON requests (state);
CREATE INDEX ix_requests_subject ON requests (subject);
CREATE INDEX ix_requests_tenant ON requests (tenant);
CREATE INDEX ix_runs_started_at ON runs (started_at);
CREATE INDEX ix_runs_state ON runs (state);
CREATE INDEX ix_webhook_deliveries_order ON webhook_deliveries (webhook, state, node, seq);
CREATE INDEX ix_alerts_active ON alerts (active);
CREATE INDEX ix_cases_closed_at ON cases (closed_at);
CREATE INDEX ix_cases_node ON cases (node);
CREATE UNIQUE INDEX one_open_case ON cases (node) WHERE closed_at = 0;
CREATE INDEX ix_certificates_node ON certificates (node);
CREATE INDEX ix_inventories_node ON inventories (node);
CREATE INDEX ix_operations_status ON operations (status);
CREATE UNIQUE INDEX one_active_operation ON operations (node) WHERE status = 'active';
CREATE INDEX ix_proofs_node ON proofs (node);
CREATE INDEX ix_reports_node ON reports (node);
CREATE INDEX ix_samples_cohort ON samples (profile, versions, taken_at);
CREATE INDEX ix_samples_newest ON samples (profile, taken_at);
CREATE INDEX ix_ledger_node ON ledger (node);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal WHEN OLD.seq > COALESCE((SELECT pruning FROM journal_base), 0) BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER number_new_node AFTER INSERT ON nodes WHEN NEW.changed = 0
    BEGIN
        UPDATE nodes SET changed = (SELECT coalesce(max(changed), 0) + 1 FROM nodes)
        WHERE id = NEW.id;
    END;
CREATE TRIGGER number_change_of_node AFTER UPDATE ON nodes WHEN NEW.changed = OLD.changed
    BEGIN
        UPDATE nodes SET changed = (SELECT coalesce(max(changed), 0) + 1 FROM nodes)
        WHERE id = NEW.id;
    END;
CREATE INDEX ix_node_versions_set ON node_versions (versions, node);
CREATE INDEX ix_usage_spans_ends_at ON usage_spans (ends_at);
CREATE INDEX ix_log_entries_node ON log_entries (node);
CREATE INDEX ix_directory_names_entry ON directory_names (entry);
