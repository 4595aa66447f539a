-- Rows as the first program ever wrote them; the columns that it did not know have their defaults.
INSERT INTO nodes (id, kind, state, generation, body)
    VALUES('n1','host','discovered',0,'{"id":"n1","kind":"host","generation":0,"state":"discovered","entered_at":0.0,"placement":"none","vrf":"","release":"","profile":"","tenant":"","certificate":"","address":"","location":{"site":"site","pod":0,"scalable_unit":0,"rack":"","index":0},"ports":[],"bmcs":[],"blockers":[],"attempts":0,"note":"first"}');
INSERT INTO operations (id, node, number, want, status, epoch, version, phase, opened_at, note)
    VALUES('n1#1','n1',1,'journey','active',1,2,'',1.0,'');
INSERT INTO ledger (id, operation, node, action, attempt, status, intended_at, "before", task, outcome, settled_at)
    VALUES(1,'n1#1','n1','cold_boot #1',1,'intended',2.0,'{"resets":3}','','',0.0);
INSERT INTO journal (seq, at, kind, node, detail, digest)
    VALUES(1,3.5,'taken in','n1','{"by":"test"}','d81fc2c5641079ba3cf6ff48f53e7ac55aa5b75e163ff17c15da6a9b55cbe221');
INSERT INTO evidence (digest, size, body)
    VALUES('ba500d3dbc53099f0fdf200762d128ca6769ab4672defd7ee4067dbe528b8f39',10,X'789C4B2C56C82C51284F2CE6020013050347');
