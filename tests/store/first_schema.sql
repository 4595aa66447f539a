-- A database as the first schema (0001) wrote it.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
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
CREATE TABLE credentials (
	name VARCHAR NOT NULL, 
	key_id VARCHAR NOT NULL, 
	current BLOB, 
	pending BLOB, 
	CONSTRAINT pk_credentials PRIMARY KEY (name)
);
CREATE TABLE evidence (
	digest VARCHAR NOT NULL, 
	size INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	CONSTRAINT pk_evidence PRIMARY KEY (digest)
);
INSERT INTO "evidence" VALUES('ba500d3dbc53099f0fdf200762d128ca6769ab4672defd7ee4067dbe528b8f39',10,X'789C4B2C56C82C51284F2CE6020013050347');
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
INSERT INTO "journal" VALUES(1,3.5,'taken in','n1','{"by":"test"}','d81fc2c5641079ba3cf6ff48f53e7ac55aa5b75e163ff17c15da6a9b55cbe221');
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
	CONSTRAINT pk_ledger PRIMARY KEY (id), 
	CONSTRAINT fk_ledger_node FOREIGN KEY(node) REFERENCES nodes (id), 
	CONSTRAINT fk_ledger_operation FOREIGN KEY(operation) REFERENCES operations (id), 
	CONSTRAINT uq_ledger_operation_action_attempt UNIQUE (operation, action, attempt)
);
INSERT INTO "ledger" VALUES(1,'n1#1','n1','cold_boot #1',1,'intended',2.0,'{"resets":3}','','',0.0);
CREATE TABLE matrices (
	digest VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	first_used_at DOUBLE NOT NULL, 
	CONSTRAINT pk_matrices PRIMARY KEY (digest)
);
CREATE TABLE nodes (
	id VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_nodes PRIMARY KEY (id)
);
INSERT INTO "nodes" VALUES('n1','host','discovered',0,'{"id":"n1","kind":"host","generation":0,"state":"discovered","entered_at":0.0,"placement":"none","vrf":"","release":"","profile":"","tenant":"","certificate":"","address":"","location":{"site":"site","pod":0,"scalable_unit":0,"rack":"","index":0},"ports":[],"bmcs":[],"blockers":[],"attempts":0,"note":"first"}');
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
INSERT INTO "operations" VALUES('n1#1','n1',1,'journey','active',1,2,'',1.0,'');
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
CREATE TABLE reports (
	id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	ended_at DOUBLE NOT NULL, 
	CONSTRAINT pk_reports PRIMARY KEY (id), 
	CONSTRAINT fk_reports_node FOREIGN KEY(node) REFERENCES nodes (id)
);
CREATE TABLE signing_keys (
	key_id VARCHAR NOT NULL, 
	master_key_id VARCHAR NOT NULL, 
	public BLOB NOT NULL, 
	private BLOB, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_signing_keys PRIMARY KEY (key_id)
);
CREATE TABLE tenants (
	name VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_tenants PRIMARY KEY (name)
);
CREATE INDEX ix_nodes_state ON nodes (state);
CREATE INDEX ix_operations_status ON operations (status);
CREATE UNIQUE INDEX one_active_operation ON operations (node) WHERE status = 'active';
CREATE INDEX ix_ledger_node ON ledger (node);
CREATE INDEX ix_inventories_node ON inventories (node);
CREATE INDEX ix_reports_node ON reports (node);
CREATE INDEX ix_certificates_node ON certificates (node);
CREATE INDEX ix_proofs_node ON proofs (node);
CREATE INDEX ix_journal_node ON journal (node);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
COMMIT;
