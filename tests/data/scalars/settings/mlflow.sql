CREATE TABLE "experiments" (
	experiment_id INTEGER NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	artifact_location VARCHAR(256), 
	lifecycle_stage VARCHAR(32), 
	creation_time BIGINT, 
	last_update_time BIGINT, 
	workspace VARCHAR(63) DEFAULT 'default' NOT NULL, 
	CONSTRAINT experiment_pk PRIMARY KEY (experiment_id), 
	CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name)
);
INSERT INTO "experiments" VALUES(0,'Default','','active',1795975274166,1795975274166,'default');
INSERT INTO "experiments" VALUES(1,'e','s3://nowhere','active',1795975274251,1795975274251,'default');
CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	is_nan BOOLEAN DEFAULT '0' NOT NULL, 
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO "metrics" VALUES('loss',0.25,1795975275400,'201e57bdcc9947f5abb71941e23be78b',1,0);
INSERT INTO "metrics" VALUES('loss',0.5,1795975275567,'201e57bdcc9947f5abb71941e23be78b',2,0);
INSERT INTO "metrics" VALUES('loss',0.75,1795975275655,'201e57bdcc9947f5abb71941e23be78b',3,0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000) NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "params" VALUES('temperature','0.7','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('top_p','0.9','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('learning_rate','1e-06','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('bf16','True','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('seed','None','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('steps','[1, 2]','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('model_name_or_path','Qwen/Qwen3-8B','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('hub_token','hf_abcdefghijklmnopqrstuvwxyz012345','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('endpoint','https://ann:hunter2@example.org/v1?token=abc123def456','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('rollout/dtype','bfloat16','201e57bdcc9947f5abb71941e23be78b');
INSERT INTO "params" VALUES('rollout/api_key','sk-0123456789abcdefghij','201e57bdcc9947f5abb71941e23be78b');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL, 
	name VARCHAR(250), 
	source_type VARCHAR(20), 
	source_name VARCHAR(500), 
	entry_point_name VARCHAR(50), 
	user_id VARCHAR(256), 
	status VARCHAR(9), 
	start_time BIGINT, 
	end_time BIGINT, 
	source_version VARCHAR(50), 
	lifecycle_stage VARCHAR(20), 
	artifact_uri VARCHAR(200), 
	experiment_id INTEGER, deleted_time BIGINT, 
	CONSTRAINT run_pk PRIMARY KEY (run_uuid), 
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), 
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO "runs" VALUES('201e57bdcc9947f5abb71941e23be78b','tonight','UNKNOWN','','','root','FINISHED',1795975275080,1795975275683,'','active','s3://nowhere/201e57bdcc9947f5abb71941e23be78b/artifacts',1,NULL);
